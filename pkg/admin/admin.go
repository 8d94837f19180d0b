// Package admin serves the port for operators: probes, metrics, and what the gateway is made of right now. Probes and
// metrics are open; everything else answers only where the port listens on loopback, since this build has no
// credentials to ask for.
package admin

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Gateway is what the port shows.
type Gateway interface {
	Ready() bool
	// Stages lists the pipeline in order.
	Stages() []string
	// Catalog lists models with their targets and whether each can be served.
	Catalog() []Model
	// Endpoints lists the addresses of all upstreams.
	Endpoints() []Endpoint
	// Config is the configuration in force, as it was read, and its hash.
	Config() (source []byte, hash string)
	// Reload reads the configuration again.
	Reload() error
}

// Model is a declared model.
type Model struct {
	Name    string   `json:"name"`
	Stable  string   `json:"stable,omitempty"`
	Targets []Target `json:"targets"`
}

// Target is a target of a model.
type Target struct {
	Name     string `json:"name"`
	Upstream string `json:"upstream"`
	Model    string `json:"model"`
	Version  string `json:"version"`
	Ready    bool   `json:"ready"`
}

// Endpoint is an address of an upstream.
type Endpoint struct {
	Upstream string `json:"upstream"`
	Address  string `json:"address"`
	Up       bool   `json:"up"`
}

// Options of the port.
type Options struct {
	Gateway Gateway
	Metrics http.Handler
	// Loopback says that only this machine can reach the port.
	Loopback bool
	// Profile opens /debug/pprof/.
	Profile bool
}

// Server makes the HTTP server of the port.
func Server(o Options) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if o.Gateway.Ready() {
			text(w, http.StatusOK, "ready\n")
			return
		}
		text(w, http.StatusServiceUnavailable, "not ready: no route can serve yet, or the gateway drains\n")
	})
	mux.Handle("GET /metrics", o.Metrics)
	operators := http.NewServeMux()
	operators.HandleFunc("GET /pipeline", func(w http.ResponseWriter, _ *http.Request) { answer(w, o.Gateway.Stages()) })
	operators.HandleFunc("GET /catalog", func(w http.ResponseWriter, _ *http.Request) { answer(w, o.Gateway.Catalog()) })
	operators.HandleFunc("GET /endpoints", func(w http.ResponseWriter, _ *http.Request) { answer(w, o.Gateway.Endpoints()) })
	operators.HandleFunc("GET /config", func(w http.ResponseWriter, _ *http.Request) {
		source, hash := o.Gateway.Config()
		w.Header().Set("ETag", `"`+hash+`"`)
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(source)
	})
	operators.HandleFunc("POST /reload", func(w http.ResponseWriter, _ *http.Request) {
		if err := o.Gateway.Reload(); err != nil {
			w.WriteHeader(http.StatusUnprocessableEntity)
			answer(w, map[string]string{"error": err.Error(), "config": "unchanged"})
			return
		}
		answer(w, map[string]string{"config": "loaded"})
	})
	if o.Profile {
		operators.HandleFunc("GET /debug/pprof/", pprof.Index)
		operators.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		operators.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
		operators.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		operators.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	}
	mux.Handle("/", guard(o.Loopback, operators))
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
}

// guard lets operators in: on loopback, and there only requests that no web page of another origin has caused.
func guard(loopback bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !loopback:
			text(w, http.StatusForbidden, "open on a loopback address only (listen.admin): this build has no credentials to ask for\n")
		case !localHost(r.Host):
			text(w, http.StatusForbidden, "unknown Host header; use the address of listen.admin\n")
		case r.Method != http.MethodGet && !sameOrigin(r):
			text(w, http.StatusForbidden, "changes from other origins are refused\n")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// localHost reports whether a Host header names this machine; a name that resolves to it may be an attacker's.
func localHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	if name == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil && ip.IsLoopback()
}

func sameOrigin(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	return len(origins) == 0 || slices.Equal(origins, []string{"http://" + r.Host})
}

func text(w http.ResponseWriter, code int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(s))
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v)
}
