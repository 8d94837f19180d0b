package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/sandbox"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// replicas are gateways at fixed addresses, as clients that balance by themselves see them.
type replicas struct {
	conn     *grpc.ClientConn
	calls    atomic.Int64
	failures sync.Map // text → true
	failed   atomic.Int64
	byPeer   sync.Map // address → *atomic.Int64
}

func balanced(t *testing.T, addresses ...string) *replicas {
	t.Helper()
	r := manual.NewBuilderWithScheme("replicas")
	var state resolver.State
	for _, a := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a})
	}
	r.InitialState(state)
	conn, err := grpc.NewClient("replicas:///gateway", grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &replicas{conn: conn}
}

func (r *replicas) served(address string) *atomic.Int64 {
	n, _ := r.byPeer.LoadOrStore(address, new(atomic.Int64))
	return n.(*atomic.Int64)
}

func (r *replicas) fail(what string, err error) {
	r.failed.Add(1)
	r.failures.Store(fmt.Sprintf("%s: %v", what, err), true)
}

// call sends one call.
func (r *replicas) call(ctx context.Context) {
	var p peer.Peer
	r.calls.Add(1)
	if _, err := tritonpb.NewGRPCInferenceServiceClient(r.conn).ModelInfer(ctx, fraudRequest(), grpc.Peer(&p)); err != nil {
		r.fail("unary", err)
		return
	}
	r.served(p.Addr.String()).Add(1)
}

// talk sends one message after the other over a stream, and opens another one when it is told to reconnect.
func (r *replicas) talk(ctx context.Context, reconnects *atomic.Int64) {
	client := tritonpb.NewGRPCInferenceServiceClient(r.conn)
	for ctx.Err() == nil {
		s, err := client.ModelStreamInfer(context.WithoutCancel(ctx))
		if err != nil {
			r.fail("open", err)
			return
		}
		for ctx.Err() == nil {
			_ = s.Send(fraudRequest()) // an error comes with Recv
			a, err := s.Recv()
			if status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "draining") {
				reconnects.Add(1)
				break
			}
			if err != nil || a.ErrorMessage != "" && !strings.Contains(a.ErrorMessage, "draining") {
				r.fail("stream", fmt.Errorf("%w %v", err, a))
				return
			}
		}
		_ = s.CloseSend()
		for {
			if _, err := s.Recv(); err != nil {
				break
			}
		}
	}
}

func TestReplicasThatAreRestartedOneByOneUnderLoadFailNoCall(t *testing.T) {
	_, triton := model(t)
	env := map[string]string{"TRITON_GRPC_HOST": triton, "GATEWAY_DRAIN_BEFORE": "100ms"}
	at := func(address string) map[string]string {
		e := map[string]string{"GATEWAY_DATA": address, "GATEWAY_ADMIN": "127.0.0.1:0"}
		for k, v := range env {
			e[k] = v
		}
		return e
	}
	gateways := []*rig{gatewayOf(t, "", at("127.0.0.1:0")), gatewayOf(t, "", at("127.0.0.1:0"))}
	clients := balanced(t, gateways[0].address, gateways[1].address)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var load sync.WaitGroup
	load.Go(func() { // open loop: a call is due whatever became of those before
		due := time.NewTicker(2 * time.Millisecond)
		defer due.Stop()
		for ctx.Err() == nil {
			<-due.C
			load.Go(func() { clients.call(context.WithoutCancel(ctx)) })
		}
	})
	var reconnects atomic.Int64
	for range 8 {
		load.Go(func() { clients.talk(ctx, &reconnects) })
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	serves := func(address string) { // until calls come back from there
		n, late := clients.served(address), soon(t)
		for before := n.Load(); n.Load() < before+20; {
			select {
			case <-tick.C:
			case <-late.Done():
				t.Fatalf("no call reaches %s", address)
			}
		}
	}
	for i, g := range gateways {
		serves(g.address)
		if err := g.stop(); err != nil {
			t.Errorf("replica %d ended with %v", i, err)
		}
		gateways[i] = gatewayOf(t, "", at(g.address))
		serves(g.address)
	}
	stop()
	load.Wait()
	if n := clients.failed.Load(); n > 0 {
		clients.failures.Range(func(text, _ any) bool { t.Log(text); return true })
		t.Errorf("%d of %d calls failed", n, clients.calls.Load())
	}
	if reconnects.Load() == 0 || clients.calls.Load() < 100 {
		t.Errorf("%d calls, %d streams moved; too little to show anything", clients.calls.Load(), reconnects.Load())
	}
	t.Logf("%d calls, %d streams moved", clients.calls.Load(), reconnects.Load())
}

func TestADrainEndsWithinItsGraceWhateverIsUnderWay(t *testing.T) {
	server, triton := model(t)
	calm.Moment(t, func() error { return drained(t, server, triton) })
}

func drained(t *testing.T, server *sandbox.Server, triton string) error {
	const grace = 2 * time.Second
	r := gatewayOf(t, "", map[string]string{"TRITON_GRPC_HOST": triton, "GATEWAY_DRAIN_GRACE": grace.String()})
	unary, stream, web := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := r.kserve().ModelInfer(context.Background(), echo([]byte{1}, time.Minute))
		unary <- err
	}()
	go func() {
		s, err := r.kserve().ModelStreamInfer(context.Background())
		if err == nil {
			_ = s.Send(echo([]byte{1}, time.Minute))
			var a *tritonpb.ModelStreamInferResponse
			if a, err = s.Recv(); err == nil { // its message is told why, or the stream as a whole
				err = status.Error(codes.Unavailable, a.GetErrorMessage())
			}
		}
		stream <- err
	}()
	go func() {
		a, err := http.Post("http://"+r.address+"/v2/models/echo/infer", "application/json",
			strings.NewReader(`{"parameters":{"delay_ms":60000},"inputs":[{"name":"UINT8","datatype":"UINT8","shape":[1],"data":[1]}],"outputs":[{"name":"UINT8_OUT"}]}`))
		if err == nil {
			var text []byte
			text, err = io.ReadAll(a.Body)
			_ = a.Body.Close()
			if err == nil {
				err = fmt.Errorf("%d %s %s", a.StatusCode, a.Header.Get("Retry-After"), text)
			}
		}
		web <- err
	}()
	if _, err := server.Await(soon(t), "echo", func(s sandbox.Seen) bool { return s.InFlight == 3 }); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := r.stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	took := time.Since(begin)
	if err := <-stream; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "not answered in time") {
		t.Errorf("the stream ended with %v", err)
	}
	const stops = "the gateway stops, and the call was not answered in time; send it again elsewhere"
	st := status.Convert(<-unary)
	reason := ""
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			reason = info.GetReason()
		}
	}
	if st.Code() != codes.Unavailable || st.Message() != stops || reason != "DRAINING" {
		t.Errorf("the call ended with %v, %s", st, reason)
	}
	if err := <-web; err == nil || !strings.HasPrefix(err.Error(), "503 1 ") || !strings.Contains(err.Error(), stops) || !strings.Contains(err.Error(), "DRAINING") {
		t.Errorf("the call over HTTP/1.1 ended with %v", err)
	}
	if _, err := server.Await(soon(t), "echo", func(s sandbox.Seen) bool { return s.InFlight == 0 }); err != nil {
		t.Error("calls are still under way upstream")
	}
	if took > grace+500*time.Millisecond {
		return fmt.Errorf("it took %s", took)
	}
	return nil
}

func TestWhileItDrainsHTTPClientsAreAskedToLeave(t *testing.T) {
	_, triton := model(t)
	calm.Moment(t, func() error {
		r := gatewayOf(t, "", map[string]string{"TRITON_GRPC_HOST": triton, "GATEWAY_DRAIN_BEFORE": "1s"})
		stopped := make(chan error, 1)
		go func() { stopped <- r.stop() }()
		asked := false
		var err error
		for !asked && err == nil { // until the drain is over, at the latest
			var a *http.Response
			if a, err = http.Get("http://" + r.address + "/livez"); err == nil {
				asked = a.Close
				_ = a.Body.Close()
			}
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		return err
	})
}
