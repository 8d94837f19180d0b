package httpfront

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/inference"
	predictpb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipeline is a fake that remembers what it was given.
type pipeline struct {
	do      func(ctx context.Context, c *inference.Call) error
	calls   []*inference.Call
	frames  [][]byte // of calls, since the front frees them
	refused []error
}

func (p *pipeline) Do(ctx context.Context, c *inference.Call) error {
	if err := c.Read(); err != nil {
		return p.Refuse(ctx, c, err)
	}
	p.calls, p.frames = append(p.calls, c), append(p.frames, c.Request.Buf.Materialize())
	c.RequestID = "id-1"
	c.Target = &inference.Target{Name: "stable", Version: "2", Upstream: "triton"}
	if p.do == nil {
		return c.Send(c.Request.Ref())
	}
	return p.do(ctx, c)
}

func (p *pipeline) Refuse(_ context.Context, c *inference.Call, err error) error {
	c.RequestID = "id-refused"
	p.calls, p.refused = append(p.calls, c), append(p.refused, err)
	return err
}

// discard answers with an empty message and remembers nothing.
type discard struct{ pipeline }

func (*discard) Do(_ context.Context, c *inference.Call) error {
	if err := c.Read(); err != nil {
		return err
	}
	return c.Send(inference.NewFrame([]byte{}))
}

// control is a fake of the interface of that name.
type control struct {
	do      func(c *inference.Call, method string, request proto.Message) (proto.Message, error)
	call    *inference.Call
	method  string
	got     proto.Message
	refused []error
}

func (f *control) Do(_ context.Context, c *inference.Call, method string, request proto.Message) (proto.Message, error) {
	if err := c.Read(); err != nil {
		f.refused = append(f.refused, err)
		return nil, err
	}
	f.call, f.method, f.got = c, method, request
	return f.do(c, method, request)
}

// answering makes a pipeline that gives every call the same answer.
func answering(t *testing.T, m proto.Message) *pipeline {
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &pipeline{do: func(_ context.Context, c *inference.Call) error { return c.Send(inference.NewFrame(b)) }}
}

// echo answers a ModelInferRequest with its inputs as outputs.
func echo(_ context.Context, c *inference.Call) error {
	in := &tritonpb.ModelInferRequest{}
	if err := proto.Unmarshal(c.Request.Buf.Materialize(), in); err != nil {
		return err
	}
	out := &tritonpb.ModelInferResponse{ModelName: in.ModelName, ModelVersion: "2", Id: in.Id, RawOutputContents: in.RawInputContents}
	for _, t := range in.Inputs {
		out.Outputs = append(out.Outputs, &tritonpb.ModelInferResponse_InferOutputTensor{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape})
	}
	b, err := proto.Marshal(out)
	if err != nil {
		return err
	}
	return c.Send(inference.NewFrame(b))
}

func front(c Config) *Front {
	if c.Pipeline == nil {
		c.Pipeline = &pipeline{do: echo}
	}
	c.Log = slog.New(slog.DiscardHandler)
	return New(c)
}

// send gives a request to a front without a connection. headers are name, value, name, value...
func send(f *Front, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

func wantStatus(t *testing.T, w *httptest.ResponseRecorder, status int, says ...string) {
	t.Helper()
	if w.Code != status {
		t.Errorf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	for _, s := range says {
		if !strings.Contains(w.Body.String(), s) {
			t.Errorf("%s\nwant it to say: %s", w.Body, s)
		}
	}
}

func wantBody(t *testing.T, w *httptest.ResponseRecorder, want string) {
	t.Helper()
	if w.Code != http.StatusOK || w.Body.String() != want {
		t.Errorf("%d %s\nwant %s", w.Code, w.Body, want)
	}
}

func prediction(t *testing.T, frame []byte) *predictpb.PredictionRequest {
	t.Helper()
	m := &predictpb.PredictionRequest{}
	if err := proto.Unmarshal(frame, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// pipes is a listener of connections in memory, which obey the clock of a synctest bubble.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial gives the client's end of a new connection.
func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// serving serves f on connections in memory until stop, which waits for the end.
func serving(f *Front) (l *pipes, stop func()) {
	l = newPipes()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.Serve(l) // that it ends well is for the tests of Shutdown
	}()
	return l, func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = f.Shutdown(ctx)
		<-done
		<-time.After(time.Second) // of the bubble's clock: the server lingers half a second over broken connections
	}
}

func readAllOf(r io.Reader) string {
	var b bytes.Buffer
	_, _ = b.ReadFrom(r)
	return b.String()
}
