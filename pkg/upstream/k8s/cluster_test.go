package k8s

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long a test waits for what comes at once where nothing is wrong.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is an API server that lists and watches what a test puts into it.
type cluster struct {
	server  *httptest.Server
	account string

	mu      sync.Mutex
	token   string
	slices  []string // as JSON
	version int
	refuse  func(w http.ResponseWriter, r *http.Request) bool // answers in place of the cluster
	queries []url.Values                                      // of requests, in order
	watches chan chan string                                  // each watch that begins: what is sent to it goes to its client, its end ends it
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{account: t.TempDir(), token: "first", version: 10, watches: make(chan chan string)}
	c.server = httptest.NewUnstartedServer(c)
	c.server.EnableHTTP2 = true
	c.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	c.server.StartTLS()
	t.Cleanup(c.server.Close)
	c.write(t, "token", "first\n")
	c.write(t, "namespace", "models")
	c.trust(t, c.server.Certificate())
	return c
}

func (c *cluster) trust(t *testing.T, cert *x509.Certificate) {
	t.Helper()
	c.write(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})))
}

func (c *cluster) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.account, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// ServeHTTP implements http.Handler.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	q := r.URL.Query()
	c.queries = append(c.queries, q)
	refuse, token := c.refuse, c.token
	list := fmt.Sprintf(`{"kind":"EndpointSliceList","metadata":{"resourceVersion":"%d"},"items":[%s]}`, c.version, strings.Join(c.slices, ","))
	c.mu.Unlock()
	switch {
	case refuse != nil && refuse(w, r):
	case r.Header.Get("Authorization") != "Bearer "+token:
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/models/endpointslices" || q.Get("labelSelector") != "kubernetes.io/service-name=triton":
		w.WriteHeader(http.StatusNotFound)
	case q.Get("watch") == "":
		_, _ = io.WriteString(w, list)
	default:
		c.watch(w, r)
	}
}

func (c *cluster) watch(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	events := make(chan string)
	select {
	case c.watches <- events:
	case <-r.Context().Done():
		return
	}
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			_, _ = io.WriteString(w, e+"\n")
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// watched waits until somebody watches, and gives where events go to.
func (c *cluster) watched(t *testing.T) chan<- string {
	t.Helper()
	select {
	case w := <-c.watches:
		return w
	case <-time.After(patience):
		t.Fatal("nobody watches")
		return nil
	}
}

// resolve starts a Resolver of k8s:///triton:port, and gives what it calls set with.
func (c *cluster) resolve(t *testing.T, port string, log io.Writer, again <-chan struct{}) <-chan string {
	t.Helper()
	o := Options{API: c.server.URL, Account: c.account}
	if log != nil {
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	r, err := New(Service{Name: "triton", Port: port}, o)
	if err != nil {
		t.Fatal(err)
	}
	r.soonest = 0
	found := make(chan string)
	ctx := t.Context()
	var watching sync.WaitGroup
	watching.Go(func() {
		r.Watch(ctx, again, func(addresses []string) {
			select {
			case found <- strings.Join(addresses, " "):
			case <-ctx.Done():
			}
		})
	})
	t.Cleanup(watching.Wait)
	return found
}

// pods is an EndpointSlice of pods, each named after its address; those that begin with ! are not ready.
func pods(name, version, family string, number int, addresses ...string) string {
	var s slice
	s.Metadata = metadata{Name: name, ResourceVersion: version}
	s.AddressType = family
	s.Ports = []port{{Name: "grpc", Protocol: "TCP", Port: number}, {Name: "metrics", Port: 8002}}
	for _, a := range addresses {
		address, unready := strings.CutPrefix(a, "!")
		e := endpoint{Addresses: []string{address}}
		ready := !unready
		e.Conditions.Ready = &ready
		s.Endpoints = append(s.Endpoints, e)
	}
	b, _ := json.Marshal(s)
	return string(b)
}

func change(kind, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`, kind, object)
}

func want(t *testing.T, found <-chan string, addresses string) {
	t.Helper()
	select {
	case got := <-found:
		if got != addresses {
			t.Fatalf("the addresses are %q, want %q", got, addresses)
		}
	case <-time.After(patience):
		t.Fatalf("nothing came; want %q", addresses)
	}
}
