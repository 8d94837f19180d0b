package k8s

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadyPodsAreFoundAndFollowed(t *testing.T) {
	c := newCluster(t)
	c.slices = []string{pods("a", "9", "IPv4", 8001, "10.0.0.2", "10.0.0.1", "!10.0.0.3"), pods("b", "9", "IPv4", 9001, "10.0.1.1")}
	found := c.resolve(t, "grpc", nil, nil)
	want(t, found, "10.0.0.1:8001 10.0.0.2:8001 10.0.1.1:9001")
	w := c.watched(t)
	w <- change("MODIFIED", pods("a", "11", "IPv4", 8001, "10.0.0.2", "!10.0.0.1", "10.0.0.3"))
	want(t, found, "10.0.0.2:8001 10.0.0.3:8001 10.0.1.1:9001")
	w <- change("BOOKMARK", `{"metadata":{"resourceVersion":"12"}}`)
	w <- change("DELETED", pods("b", "13", "IPv4", 9001, "10.0.1.1"))
	want(t, found, "10.0.0.2:8001 10.0.0.3:8001")
	w <- change("ADDED", pods("c", "14", "IPv4", 8001, "10.0.2.1"))
	want(t, found, "10.0.0.2:8001 10.0.0.3:8001 10.0.2.1:8001")
}

func TestAWatchThatEndsGoesOnWhereItEndedWithTheNewestToken(t *testing.T) {
	c := newCluster(t)
	c.slices = []string{pods("a", "9", "IPv4", 8001, "10.0.0.1")}
	found := c.resolve(t, "8001", nil, nil)
	want(t, found, "10.0.0.1:8001")
	w := c.watched(t)
	w <- change("BOOKMARK", `{"metadata":{"resourceVersion":"77"}}`)
	c.write(t, "token", "second")
	c.set(func() { c.token = "second" })
	close(w)
	w = c.watched(t)
	w <- change("MODIFIED", pods("a", "78", "IPv4", 8001, "10.0.0.9"))
	want(t, found, "10.0.0.9:8001")
	c.set(func() {
		if len(c.queries) != 3 {
			t.Errorf("the API server was asked %d times", len(c.queries))
		}
		if q := c.queries[2]; q.Get("resourceVersion") != "77" || q.Get("allowWatchBookmarks") != "true" || q.Get("timeoutSeconds") == "" {
			t.Errorf("the watch went on with %v", q)
		}
	})
}

func TestAVersionThatIsGoneIsListedAnew(t *testing.T) {
	c := newCluster(t)
	c.slices = []string{pods("a", "9", "IPv4", 8001, "10.0.0.1")}
	found := c.resolve(t, "8001", nil, nil)
	want(t, found, "10.0.0.1:8001")
	w := c.watched(t)
	c.set(func() { c.slices = []string{pods("b", "90", "IPv4", 8001, "10.0.0.2")} })
	w <- change("ERROR", `{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}`)
	want(t, found, "10.0.0.2:8001")
	w = c.watched(t)
	first := true
	c.set(func() {
		c.slices = []string{pods("c", "91", "IPv4", 8001, "10.0.0.3")}
		c.refuse = func(w http.ResponseWriter, r *http.Request) bool { // as an answer to the request itself
			if gone := first && r.URL.Query().Get("watch") != ""; gone {
				first = false
				w.WriteHeader(http.StatusGone)
				return true
			}
			return false
		}
	})
	close(w)
	want(t, found, "10.0.0.3:8001")
	c.watched(t)
}

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestWhileTheAPIServerIsGoneTheLastAddressesStay(t *testing.T) {
	c := newCluster(t)
	c.slices = []string{pods("a", "9", "IPv4", 8001, "10.0.0.1")}
	var log lines
	found := c.resolve(t, "8001", &log, nil)
	want(t, found, "10.0.0.1:8001")
	w := c.watched(t)
	failed := make(chan struct{}, 100)
	c.set(func() {
		c.refuse = func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "etcd is away")
			failed <- struct{}{}
			return true
		}
		c.slices = []string{pods("a", "20", "IPv4", 8001, "10.0.0.1", "10.0.0.2")}
	})
	c.server.CloseClientConnections()
	close(w)
	for range 2 {
		select {
		case <-failed:
		case got := <-found:
			t.Fatalf("without an API server the addresses became %s", got)
		}
	}
	c.set(func() { c.refuse = nil })
	want(t, found, "10.0.0.1:8001 10.0.0.2:8001")
	if n := strings.Count(log.String(), "cannot be had"); n != 1 || !strings.Contains(log.String(), "known again") {
		t.Errorf("an outage was told of %d times:\n%s", n, log.String())
	}
}

func TestPodsThatAreAllUnreadyStay(t *testing.T) {
	c := newCluster(t)
	c.slices = []string{pods("a", "9", "IPv4", 8001, "10.0.0.1")}
	found := c.resolve(t, "8001", nil, nil)
	want(t, found, "10.0.0.1:8001")
	w := c.watched(t)
	w <- change("MODIFIED", pods("a", "11", "IPv4", 8001, "!10.0.0.1"))
	w <- change("DELETED", pods("a", "12", "IPv4", 8001))
	w <- change("ADDED", pods("a", "13", "IPv4", 8001, "10.0.0.2"))
	want(t, found, "10.0.0.2:8001")
}

func TestAConnectionThatFailsHasThemListedAnew(t *testing.T) {
	c := newCluster(t)
	c.slices = []string{pods("a", "9", "IPv4", 8001, "10.0.0.1")}
	again := make(chan struct{})
	found := c.resolve(t, "8001", nil, again)
	want(t, found, "10.0.0.1:8001")
	c.watched(t)
	c.set(func() { c.slices = []string{pods("a", "20", "IPv4", 8001, "10.0.0.5")} })
	for {
		select {
		case again <- struct{}{}:
			continue
		case got := <-found:
			if got != "10.0.0.5:8001" {
				t.Errorf("got %s", got)
			}
		}
		break
	}
}

func TestAReplacedAuthorityIsReadAfterAFailure(t *testing.T) {
	c := newCluster(t)
	c.slices = []string{pods("a", "9", "IPv4", 8001, "10.0.0.1")}
	c.write(t, "ca.crt", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
	var log lines
	found := c.resolve(t, "8001", &log, nil)
	for late := time.Now().Add(patience); !strings.Contains(log.String(), "has no certificate"); {
		if time.Now().After(late) {
			t.Fatal(log.String())
		}
	}
	c.trust(t, c.server.Certificate())
	want(t, found, "10.0.0.1:8001")
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	c := newCluster(t)
	for status, said := range map[int]string{
		http.StatusForbidden:    "give it a Role in namespace models with get, list and watch on endpointslices of discovery.k8s.io",
		http.StatusUnauthorized: "does not accept the service account's token",
		http.StatusTeapot:       "418",
		http.StatusFound:        "302", // the token goes nowhere else
	} {
		c.refuse = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			return true
		}
		r, err := New(Service{Name: "triton", Port: "grpc"}, Options{API: c.server.URL, Account: c.account})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.list(t.Context()); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%d: %v", status, err)
		}
		r.api.close()
	}
}

func TestOutsideOfAClusterThereIsNothingToAsk(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := New(Service{Namespace: "a", Name: "b", Port: "1"}, Options{}); err == nil || !strings.Contains(err.Error(), "dns:///") {
		t.Errorf("got %v", err)
	}
	if _, err := New(Service{Name: "b", Port: "1"}, Options{API: "http://127.0.0.1:1", Account: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "k8s:///namespace/b:1") {
		t.Errorf("without a namespace: %v", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	r, err := New(Service{Namespace: "a", Name: "b", Port: "1"}, Options{})
	if err != nil || r.api.base != "https://[fd00::1]:443" || r.String() != "k8s:///a/b:1" || r.ServerName() != "b.a.svc" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestWhichAddressesCount(t *testing.T) {
	of := func(text string) slice {
		var s slice
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	pod := func(name, rest string) string {
		return fmt.Sprintf(`{"targetRef":{"kind":"Pod","namespace":"models","name":%q},%s}`, name, rest)
	}
	for _, c := range []struct {
		name, port string
		slices     []slice
		want       string // addresses, or a part of the error
	}{
		{"a pod with both families is one server", "grpc", []slice{
			of(`{"addressType":"IPv6","ports":[{"name":"grpc","port":8001}],"endpoints":[` + pod("a", `"addresses":["fd00::1"]`) + `,` + pod("b", `"addresses":["fd00::2"]`) + `]}`),
			of(`{"addressType":"IPv4","ports":[{"name":"grpc","port":8001}],"endpoints":[` + pod("a", `"addresses":["10.0.0.1"]`) + `]}`),
		}, "10.0.0.1:8001 [fd00::2]:8001"},
		{"without conditions it is ready", "8001", []slice{of(`{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]},{"addresses":["10.0.0.2"],"conditions":{}}]}`)}, "10.0.0.1:8001 10.0.0.2:8001"},
		{"one that is leaving and still serves gets nothing new", "8001", []slice{of(`{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":false,"serving":true,"terminating":true}},{"addresses":["10.0.0.2"],"conditions":{"ready":true}}]}`)}, "10.0.0.2:8001"},
		{"only the first address of an endpoint means something", "8001", []slice{of(`{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1","10.0.0.9"]}]}`)}, "10.0.0.1:8001"},
		{"names", "8001", []slice{of(`{"addressType":"FQDN","endpoints":[{"addresses":["triton.example"]},{"addresses":["a b"]},{"addresses":[""]}]}`)}, "triton.example:8001"},
		{"what is no address is dropped", "8001", []slice{of(`{"addressType":"IPv4","endpoints":[{"addresses":["localhost"]},{"addresses":[]},{"addresses":["10.0.0.1"]}]}`)}, "10.0.0.1:8001"},
		{"UDP is no port of ours", "grpc", []slice{of(`{"addressType":"IPv4","ports":[{"name":"grpc","port":1,"protocol":"UDP"},{"name":"http","port":8000}],"endpoints":[{"addresses":["10.0.0.1"]}]}`)}, `no port named "grpc"; it has "http"`},
		{"a port of zero is none", "grpc", []slice{of(`{"addressType":"IPv4","ports":[{"name":"grpc","port":0}],"endpoints":[{"addresses":["10.0.0.1"]}]}`)}, `no port named "grpc"`},
		{"none is ready", "8001", []slice{of(`{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":false}}]}`)}, "none of the service's 1 endpoints is ready"},
		{"nothing is there", "8001", nil, "does not exist"},
	} {
		t.Run(c.name, func(t *testing.T) {
			known := make(map[string]slice)
			for i, s := range c.slices {
				known[fmt.Sprint(i)] = s
			}
			got, err := addresses(known, c.port)
			switch {
			case err != nil:
				if !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
			default:
				if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestAnEventThatNeverEndsIsGivenUp(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(`{"type":"ADDED","object":{"x":"`), zeros{})
	if _, err := follow(endless, "1", map[string]slice{}, func() {}); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("got %v", err)
	}
}

func TestEventsTogetherMayBeLargerThanOneMayBe(t *testing.T) {
	one := change("ADDED", `{"metadata":{"name":"a","resourceVersion":"1"},"filler":"`+strings.Repeat("x", maxEvent/2)+`"}`)
	n := 3*maxEvent/len(one) + 1
	seen := 0
	version, err := follow(strings.NewReader(strings.Repeat(one+"\n", n)), "0", map[string]slice{}, func() { seen++ })
	if err != nil || version != "1" || seen != n {
		t.Errorf("%d of %d, version %s, %v", seen, n, version, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte(change("ADDED", pods("a", "1", "IPv4", 8001, "10.0.0.1", "!10.0.0.2"))), "grpc")
	f.Add([]byte(change("MODIFIED", pods("b", "2", "IPv6", 8001, "fd00::1"))+"\n"+change("DELETED", pods("b", "3", "IPv6", 8001))), "8001")
	f.Add([]byte(change("BOOKMARK", `{"metadata":{"resourceVersion":"4"}}`)), "8001")
	f.Add([]byte(change("ERROR", `{"code":410}`)), "8001")
	f.Add([]byte(`{"type":"ADDED","object":null}{"type":7}`), "")
	f.Fuzz(func(t *testing.T, body []byte, wanted string) {
		known := map[string]slice{}
		check := func() {
			all, err := addresses(known, wanted)
			if (len(all) == 0) != (err != nil) || len(all) > maxEndpoints || len(known) > maxKept {
				t.Fatalf("%d addresses of %d slices, %v", len(all), len(known), err)
			}
			for i, a := range all {
				host, port, err := net.SplitHostPort(a)
				if err != nil || host == "" || port == "" || i > 0 && all[i-1] >= a {
					t.Fatalf("addresses %q: %v", all, err)
				}
			}
		}
		if _, err := follow(bytes.NewReader(body), "0", known, check); err != nil && !errors.Is(err, errGone) && err.Error() == "" {
			t.Fatal("an error without a text")
		}
	})
}
