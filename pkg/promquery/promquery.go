// Package promquery asks a Prometheus, or what speaks its API, for the values of an expression now. An answer is taken
// whole or not at all, and is bounded in time and size, so that a server that is slow, gone or beside itself costs whoever
// asks nothing but the answer. It knows nothing of what the values mean.
package promquery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Limits of one question.
const (
	Timeout   = 5 * time.Second // until the whole answer is there
	MaxAnswer = 16 << 20        // bytes, unpacked
	MaxSeries = 100_000

	dialTimeout  = 2 * time.Second
	maxRedirects = 3
	maxSaid      = 200 // bytes of a server's own words that an error repeats
)

// Client asks one server. It is safe for concurrent use.
type Client struct {
	query string // URL of instant queries
	http  *http.Client
}

// New makes a client of the server at base, such as http://prometheus:9090 or https://metrics.example.com/prometheus.
// It connects when it is asked something.
func New(base string) *Client {
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &Client{query: strings.TrimRight(base, "/") + "/api/v1/query", http: &http.Client{Transport: transport, CheckRedirect: followed}}
}

// followed lets no redirect lead away from https.
func followed(r *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return errors.New("a redirect away from https")
	}
	return nil
}

// Close drops the connection that is kept. The client stays good.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Vector evaluates expr, which must be an instant vector, and calls each for every series in it, in the server's order;
// values may be NaN or infinite. When anything is wrong with the answer, each is not called at all.
func (c *Client) Vector(ctx context.Context, expr string, each func(labels map[string]string, value float64)) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	seconds := strconv.FormatFloat(Timeout.Seconds(), 'f', -1, 64) // so that the server gives up when nobody waits any more
	// GET rather than POST: it is what proxies that only let people read let through.
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.query+"?"+url.Values{"query": {expr}, "timeout": {seconds}}.Encode(), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	answer, err := c.http.Do(r)
	if err != nil {
		return explained(err)
	}
	defer func() { _ = answer.Body.Close() }() // read to its end, or given up
	body, err := io.ReadAll(io.LimitReader(answer.Body, MaxAnswer+1))
	switch {
	case err != nil:
		return explained(err)
	case len(body) > MaxAnswer:
		return fmt.Errorf("the answer has more than %d MiB", MaxAnswer>>20)
	}
	all, err := parse(body)
	if answer.StatusCode != http.StatusOK {
		var said *refusal
		if errors.As(err, &said) {
			return fmt.Errorf("HTTP %d: %w", answer.StatusCode, said)
		}
		return fmt.Errorf("HTTP %d, without a word of Prometheus; is prometheus.url its address", answer.StatusCode)
	}
	if err != nil {
		return err
	}
	for i := range all {
		each(all[i].Metric, float64(all[i].Value))
	}
	return nil
}

// explained leaves the URL, with all of the expression, out of an error, and names a timeout as such.
func explained(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", Timeout)
	}
	return err
}

// refusal is an error that the server reports in words.
type refusal struct{ kind, text string }

func (r *refusal) Error() string { return strings.TrimPrefix(r.kind+": "+r.text, ": ") }

type series struct {
	Metric map[string]string `json:"metric"`
	Value  value             `json:"value"`
}

// value is the second of [time, "value"].
type value float64

// UnmarshalJSON implements json.Unmarshaler.
func (v *value) UnmarshalJSON(b []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	var text string
	if len(pair) != 2 || json.Unmarshal(pair[1], &text) != nil || bytes.Equal(pair[1], []byte("null")) {
		return errors.New("a value is not a time and a text")
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("a value is %q, which is no number", clip(text))
	}
	*v = value(f)
	return nil
}

// parse reads an answer of /api/v1/query.
func parse(body []byte) ([]series, error) {
	var answer struct {
		Status    string `json:"status"`
		ErrorType string `json:"errorType"`
		Error     string `json:"error"`
		Data      struct {
			Type   string          `json:"resultType"`
			Result json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("the answer is not the JSON of Prometheus: %w", err)
	}
	switch {
	case answer.Status == "error":
		return nil, &refusal{clip(answer.ErrorType), clip(answer.Error)}
	case answer.Status != "success":
		return nil, fmt.Errorf("the answer is not one of Prometheus: its status is %q", clip(answer.Status))
	case answer.Data.Type != "vector":
		return nil, fmt.Errorf("the result is of type %q, not vector", clip(answer.Data.Type))
	}
	var all []series
	if err := json.Unmarshal(answer.Data.Result, &all); err != nil {
		return nil, fmt.Errorf("the result is no vector: %w", err)
	}
	if len(all) > MaxSeries {
		return nil, fmt.Errorf("the result has %d series, and at most %d are taken", len(all), MaxSeries)
	}
	return all, nil
}

// clip keeps a foreign text short, and without anything that would move a terminal's cursor.
func clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxSaid {
		s = strings.ToValidUTF8(s[:maxSaid], "") + "…"
	}
	return s
}
