// Package admin serves the port for operators: probes, metrics, and what the gateway is made of right now. Probes and
// metrics are open. Everything else answers on loopback to all who reach it, and beyond it to callers with the kind
// admin, who send the credentials they call with. Every change is kept for the record, whoever makes it.
package admin

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
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
	// Config is the configuration in force with its secrets masked, and its hash.
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
	// Ejected lists the models, as name/version on the upstream, that it gets no calls for since it keeps failing; "*"
	// stands for all of them.
	Ejected []string `json:"ejected,omitempty"`
	// InFlight is how many calls are under way there, from this replica, and MaxInFlight how many may be; 0: any number.
	InFlight    int `json:"in_flight"`
	MaxInFlight int `json:"max_in_flight,omitempty"`
}

// Options of the port.
type Options struct {
	Gateway Gateway
	Metrics http.Handler
	// Loopback says that only this machine can reach the port.
	Loopback bool
	// Profile opens /debug/pprof/.
	Profile bool
	// Callers and Access tell operators from others beyond loopback; without them nobody is one.
	Callers Callers
	Access  Access
	// Audit keeps the record of changes; nil keeps none.
	Audit *Audit
	// Explainer answers GET /explain; nil leaves it out.
	Explainer Explainer
	// Scripts answers /scripts; nil leaves it out.
	Scripts Scripts
	// Breakers answers /breakers; nil leaves it out.
	Breakers Breakers
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
	operators.HandleFunc("GET /pipeline", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, o.Gateway.Stages()) })
	operators.HandleFunc("GET /catalog", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, o.Gateway.Catalog()) })
	operators.HandleFunc("GET /endpoints", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, o.Gateway.Endpoints()) })
	operators.HandleFunc("GET /config", func(w http.ResponseWriter, _ *http.Request) {
		source, hash := o.Gateway.Config()
		w.Header().Set("ETag", `"`+hash+`"`)
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(source)
	})
	operators.HandleFunc("POST /reload", o.change("reload config", ThisReplica, func(*http.Request) (any, error) {
		if err := o.Gateway.Reload(); err != nil {
			return map[string]string{"error": err.Error(), "config": "unchanged"}, err
		}
		return map[string]string{"config": "loaded", "scope": ThisReplica}, nil
	}))
	if o.Explainer != nil {
		operators.HandleFunc("GET /explain", explainHandler(o.Explainer))
	}
	if o.Scripts != nil {
		o.scripts(operators)
	}
	if o.Breakers != nil {
		o.breakers(operators)
	}
	if o.Profile {
		operators.HandleFunc("GET /debug/pprof/", pprof.Index)
		operators.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		operators.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
		operators.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		operators.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	}
	mux.Handle("/", &guard{loopback: o.Loopback, callers: o.Callers, access: o.Access, next: operators})
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
}

// change handles a request that changes something. do gives the answer, also when it fails; then nothing has changed.
func (o *Options) change(what, scope string, do func(*http.Request) (any, error)) http.HandlerFunc {
	hash := func() string { _, h := o.Gateway.Config(); return h }
	return func(w http.ResponseWriter, r *http.Request) {
		var said any
		err := o.Audit.Change(who(r), what, scope, r.RemoteAddr, hash, func() (err error) {
			said, err = do(r)
			return err
		})
		if err != nil {
			answer(w, http.StatusUnprocessableEntity, said)
			return
		}
		answer(w, http.StatusOK, said)
	}
}

func text(w http.ResponseWriter, code int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(s))
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v)
}
