// Package httpfront is the HTTP/1.1 side of the gateway: POST /v1/predict with the users' messages as JSON, KServe
// v2 REST as Triton speaks it, with JSON and binary tensors, probes and metrics.
//
// It parses, calls the pipeline or control, and renders; it decides nothing about models. Bodies, headers and times
// are limited, whatever is wrong with a request is a fault as JSON, {"error": text, "reason": name}, and a client that
// hangs up cancels its call.
package httpfront

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/room"
)

// Pipeline takes calls through the stages.
type Pipeline interface {
	// Do answers a unary call; after nil, c.Answer holds the answer.
	Do(ctx context.Context, c *inference.Call) error
	// Refuse ends a call that could not even be read, so that it is counted and has its ids.
	Refuse(ctx context.Context, c *inference.Call, err error) error
}

// Control answers questions about servers and models and does what changes them. method is a method
// of inference.GRPCInferenceService by its short name, request and answer are its messages.
type Control interface {
	Do(ctx context.Context, c *inference.Call, method string, request proto.Message) (proto.Message, error)
}

// Config of a Front. Pipeline and Control are needed, all else has defaults.
type Config struct {
	Pipeline   Pipeline
	Control    Control
	Ready      func() bool  // GET /readyz and /v2/health/ready; nil is always ready
	Live       func() bool  // GET /livez and /v2/health/live; nil is always live
	Metrics    http.Handler // GET /metrics; nil is off
	MaxMessage int          // bytes of a body after inflation, and of the message made of it; 0 is 64 MiB
	Room       *room.Room   // for bodies; nil: there is always room
	Log        *slog.Logger // nil is slog.Default()

	HeaderTimeout time.Duration // until a request's headers are complete; 0 is 10 s
	BodyTimeout   time.Duration // from then on until its body is; 0 is 60 s
	AnswerTimeout time.Duration // for a client to take its answer; 0 is 60 s
	IdleTimeout   time.Duration // of a connection between requests; 0 is 120 s
	// MaxAge is how long a connection is used, give or take a tenth, before the answer to a request asks for another one,
	// so that clients spread over gateways that came later; 0 is for ever.
	MaxAge time.Duration
}

const (
	// parting is how long calls have at the end of a drain to tell why they are cut.
	parting           = 900 * time.Millisecond
	defaultMaxMessage = 64 << 20
	// The server of net/http reads 4 KiB beyond its own limit, so this is 16 KiB in all.
	maxHeaderBytes = 12 << 10
)

// Front serves. Its ServeHTTP can be used without Serve.
type Front struct {
	Config
	routes  *router
	server  *http.Server
	leaving atomic.Bool
}

// New makes a Front that is not serving yet.
func New(c Config) *Front {
	setDefault(&c.MaxMessage, defaultMaxMessage)
	setDefault(&c.HeaderTimeout, 10*time.Second)
	setDefault(&c.BodyTimeout, time.Minute)
	setDefault(&c.AnswerTimeout, time.Minute)
	setDefault(&c.IdleTimeout, 2*time.Minute)
	always := func() bool { return true }
	if c.Ready == nil {
		c.Ready = always
	}
	if c.Live == nil {
		c.Live = always
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	f := &Front{Config: c}
	f.routes = f.table()
	f.server = &http.Server{
		Handler:           f,
		ReadHeaderTimeout: c.HeaderTimeout,
		IdleTimeout:       c.IdleTimeout,
		ConnContext:       f.begin,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug), // broken clients, mostly
		Protocols:         new(http.Protocols),
	}
	f.server.Protocols.SetHTTP1(true)
	return f
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Serve serves connections of l until Shutdown, which makes it return nil.
func (f *Front) Serve(l net.Listener) error {
	if err := f.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown takes no more connections, closes idle ones, lets calls under way finish, and returns when they have.
// When ctx ends first, calls have a moment to end by themselves, whoever sees to that; then what is left is cut off. The
// error is that of ctx.
func (f *Front) Shutdown(ctx context.Context) error {
	err := f.server.Shutdown(ctx)
	if err == nil {
		return nil
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), parting)
	defer cancel()
	if f.server.Shutdown(last) != nil {
		_ = f.server.Close()
	}
	return err
}

// ServeHTTP answers one request.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := exchange{front: f, w: w, r: r, control: http.NewResponseController(w)}
	defer x.recovered()
	f.part(w, r)
	// The deadline of the connection's last answer must not hit what the server itself writes for this request.
	// Writers in tests have no deadlines, hence no look at the errors.
	_ = x.control.SetWriteDeadline(time.Time{})
	if r.ContentLength != 0 {
		_ = x.control.SetReadDeadline(time.Now().Add(f.BodyTimeout))
	}
	x.serve()
}
