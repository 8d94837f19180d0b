package triton

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	pendingName   = "nv_inference_pending_request_count"
	hostPlace     = "{host}"
	maxScrape     = 64 << 20 // bytes of one server's metrics
	maxScrapeLine = 64 << 10
	maxPending    = 100_000 // versions of models of one server
	maxScrapeName = 1024    // bytes of a model's name
)

// scrapes reads the metrics of an upstream's servers while calls are placed by what waits there.
type scrapes struct {
	wanted atomic.Int64 // when a call was last placed by it, unix seconds
	url    atomic.Pointer[string]
	client *http.Client
	told   time.Time // a failure
}

func newScrapeClient() *http.Client {
	return &http.Client{
		Timeout: scrapeTimeout,
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: scrapeTimeout}).DialContext, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: scrapeTimeout, ResponseHeaderTimeout: scrapeTimeout, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// scrapeLoop reads metrics every scrapeEvery until the upstream is closed.
func (u *Upstream) scrapeLoop() {
	u.scrapes.client = newScrapeClient()
	defer u.scrapes.client.CloseIdleConnections()
	tick := time.NewTicker(scrapeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-u.life.Done():
			return
		}
		url := u.scrapes.url.Load()
		if url == nil || *url == "" || time.Now().Unix()-u.scrapes.wanted.Load() > int64(recent/time.Second) {
			continue
		}
		u.scrapeAll(*url)
	}
}

// scrapeAll reads the metrics of every endpoint.
func (u *Upstream) scrapeAll(url string) {
	places := make(chan struct{}, scrapesAtOnce)
	var under sync.WaitGroup
	var failed atomic.Pointer[error]
	var failures atomic.Int64
	endpoints := u.list()
	for _, e := range endpoints {
		places <- struct{}{}
		under.Go(func() {
			defer func() { <-places }()
			count, err := u.scrape(addressOf(url, e.name))
			if err != nil {
				failures.Add(1)
				failed.Store(&err)
				return
			}
			e.pending.Store(&pending{at: time.Now(), count: count})
		})
	}
	under.Wait()
	if err := failed.Load(); err != nil && u.life.Err() == nil && time.Since(u.scrapes.told) >= scrapeWarn {
		u.scrapes.told = time.Now()
		u.log.Warn("metrics of endpoints cannot be read; calls are placed by what is under way from here alone", "upstream", u.name, "endpoints", failures.Load(), "of", len(endpoints), "error", *err)
	}
}

// addressOf is the URL of an endpoint's metrics.
func addressOf(url, endpoint string) string {
	host, _, err := net.SplitHostPort(endpoint)
	if err != nil {
		host = endpoint
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return strings.ReplaceAll(url, hostPlace, host)
}

// scrape reads one server's metrics.
func (u *Upstream) scrape(url string) (map[poolKey]int64, error) {
	ctx, cancel := context.WithTimeout(u.life, scrapeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := u.scrapes.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", url, answer.Status)
	}
	count, err := parsePending(io.LimitReader(answer.Body, maxScrape))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return count, nil
}

// parsePending reads how many requests wait from metrics in Prometheus's text format. Whatever else there is, and lines
// that make no sense, are passed over.
func parsePending(r io.Reader) (map[poolKey]int64, error) {
	count := make(map[poolKey]int64)
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4<<10), maxScrapeLine)
	for lines.Scan() {
		rest, ok := bytes.CutPrefix(lines.Bytes(), []byte(pendingName+"{"))
		if !ok {
			continue
		}
		key, rest, ok := parseLabels(rest)
		if !ok {
			continue
		}
		n, ok := parseCount(rest)
		if _, has := count[key]; !ok || !has && len(count) >= maxPending {
			continue
		}
		count[key] += n
	}
	return count, lines.Err()
}

// parseLabels reads labels up to their closing brace, and gives what follows it.
func parseLabels(b []byte) (key poolKey, rest []byte, ok bool) {
	for {
		b = bytes.TrimLeft(b, ", ")
		if rest, ok := bytes.CutPrefix(b, []byte("}")); ok {
			return key, rest, key.model != ""
		}
		name, after, found := bytes.Cut(b, []byte("="))
		if !found || len(after) == 0 || after[0] != '"' {
			return key, nil, false
		}
		value, n := parseQuoted(after)
		if n == 0 || len(value) > maxScrapeName {
			return key, nil, false
		}
		switch string(bytes.TrimSpace(name)) {
		case "model":
			key.model = value
		case "version":
			key.version = value
		}
		b = after[n:]
	}
}

// parseQuoted reads a label's value, which begins with its quote, and gives how many bytes it took; 0 when it has no end.
func parseQuoted(b []byte) (value string, n int) {
	var text strings.Builder
	for i := 1; i < len(b); i++ {
		switch c := b[i]; c {
		case '"':
			return text.String(), i + 1
		case '\\':
			if i++; i == len(b) {
				return "", 0
			}
			if b[i] == 'n' {
				text.WriteByte('\n')
			} else {
				text.WriteByte(b[i])
			}
		default:
			text.WriteByte(c)
		}
	}
	return "", 0
}

// parseCount reads a line's value, after which there may be a time.
func parseCount(b []byte) (int64, bool) {
	fields := bytes.Fields(b)
	if len(fields) == 0 {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(fields[0]), 64)
	if err != nil || math.IsNaN(v) || v < 0 {
		return 0, false
	}
	return int64(min(v, 1<<30)), true
}
