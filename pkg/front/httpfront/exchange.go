package httpfront

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/room"
)

// exchange is one request and its answer.
type exchange struct {
	front   *Front
	w       http.ResponseWriter
	r       *http.Request
	control *http.ResponseController
	route   *route
	vars    map[string]string // names of the path, decoded
	call    *inference.Call   // nil until newCall
	read    func() error      // reads the body into the call or the question; see Read
	begun   bool              // the answer's status has been sent
	bodyLen int               // bytes of the body
	hold    room.Hold         // the room that the body takes, and what is made of it
}

// timeoutHeader limits the time of a call, as a Go duration; grpc-timeout is what gRPC has for it.
const timeoutHeader = "X-Request-Timeout"

func (x *exchange) serve() {
	var vars map[string]string
	if x.route, vars = x.front.routes.find(x.r.URL.EscapedPath()); x.route == nil {
		x.writeError(http.StatusNotFound, "NO_SUCH_PATH", "nothing is served at this path; what is: "+whereToLook)
		return
	}
	serve := x.route.method(x.r.Method)
	if serve == nil {
		allow := x.route.allow()
		x.w.Header().Set("Allow", allow)
		x.writeError(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "this path takes "+allow)
		return
	}
	x.vars = vars
	defer func() {
		if x.call != nil {
			x.call.Free()
		}
		x.hold.Free()
	}()
	if err := serve(x); err != nil {
		x.fail(err)
	}
}

// newCall starts the call of a request with what its headers say.
func (x *exchange) newCall(kind inference.Kind, protocol inference.Protocol) *inference.Call {
	x.call = &inference.Call{Kind: kind, Protocol: protocol, Method: x.route.pattern, Start: time.Now(), Peer: peer(x.r), TLS: x.r.TLS}
	return x.call
}

// headers reads what the headers say into the call, and gives the context that it runs under.
func (x *exchange) headers() (context.Context, context.CancelFunc, error) {
	ctx, cancel := x.r.Context(), context.CancelFunc(func() {})
	in, err := Incoming(x.r.Header)
	x.call.Incoming = in // also of a refused call, which has its id there
	if err != nil {
		return ctx, cancel, err
	}
	text := x.r.Header.Get(timeoutHeader)
	if text == "" {
		return ctx, cancel, nil
	}
	timeout, err := time.ParseDuration(text)
	if err != nil {
		return ctx, cancel, fault.New(fault.InvalidArgument, "%s is not a duration; write it like 300ms or 2s", timeoutHeader)
	}
	if timeout <= 0 {
		return ctx, cancel, fault.New(fault.Expired, "%s was used up before the call began", timeoutHeader)
	}
	ctx, cancel = context.WithDeadline(ctx, x.call.Start.Add(timeout))
	return ctx, cancel, nil
}

// peer gives the client's address, nil where it is none of TCP.
func peer(r *http.Request) net.Addr {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return nil
	}
	return net.TCPAddrFromAddrPort(a)
}

// Read implements inference.Source.
func (x *exchange) Read(c *inference.Call) error {
	if err := x.read(); err != nil {
		return err
	}
	if c.Request.Len() > 0 {
		x.hold.Read(x.bodyLen + c.Request.Len())
	}
	return nil
}

// refuse ends a call whose headers could not be read, so that it is counted all the same.
func (x *exchange) refuse(ctx context.Context, err error) error {
	if refused := x.front.Pipeline.Refuse(ctx, x.call, err); refused != nil {
		return refused
	}
	return err
}

// recovered answers for a handler that panicked. Panics of stages do not get here.
func (x *exchange) recovered() {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	x.front.Log.Error("panic while serving HTTP", "panic", p, "route", x.route.pattern, "stack", string(debug.Stack()))
	if x.begun {
		panic(http.ErrAbortHandler) // the server cuts the connection: nothing else can tell the client
	}
	x.fail(fault.New(fault.Internal, "internal error of the gateway; its log has the details"))
}
