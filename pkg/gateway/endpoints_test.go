package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/sandbox"
	"github.com/model-gateway/model-gateway/pkg/upstream/k8s"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton"
	tritonmodels "github.com/model-gateway/model-gateway/triton-models"
)

// modelAt starts an embedded model server on a loopback address of its own, on a port that is free on it.
func modelAt(t *testing.T, address string) (*sandbox.Server, string) {
	t.Helper()
	s, err := sandbox.New(sandbox.Options{Models: tritonmodels.FS})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("this machine has no %s: %v", address, err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); served.Wait() })
	return s, l.Addr().String()
}

func TestCallsAvoidTheServerWhereRequestsOfOthersWait(t *testing.T) {
	busy, busyAt := modelAt(t, "127.0.0.1:0")
	idle, idleAt := modelAt(t, "127.0.0.2:0")
	asked := make(chan string, 100)
	metrics := func(l net.Listener, waiting int) {
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "# TYPE nv_inference_pending_request_count gauge\nnv_inference_pending_request_count{model=\"fraud\",version=\"1\"} %d\n", waiting)
			select {
			case asked <- r.Host:
			default:
			}
		})}
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { _ = server.Close() })
	}
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(first.Addr().String())
	second, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Skip(err)
	}
	metrics(first, 1000)
	metrics(second, 0)
	r := gatewayOf(t, fmt.Sprintf(`
upstreams: {triton: {endpoints: [%s, "%s"], metrics: "http://{host}:%s/metrics"}}
models: [{name: fraud, targets: {v1: {version: 1}}, pick: queue_depth}]
`, busyAt, idleAt, port), nil)
	call := func(n int) {
		t.Helper()
		for range n {
			if _, err := r.kserve().ModelInfer(t.Context(), fraudRequest()); err != nil {
				t.Fatal(err)
			}
		}
	}
	calm.Moment(t, func() error { // in which what is known of the servers does not grow old
		late := soon(t)
		for seen := map[string]int{}; seen["127.0.0.1:"+port] < 2 || seen["127.0.0.2:"+port] < 2; {
			call(1) // metrics are read while there are calls
			select {
			case host := <-asked:
				seen[host]++ // the second reading begins when the first is known
			case <-time.After(10 * time.Millisecond):
			case <-late.Done():
				t.Fatalf("metrics were read %v times, want twice each", seen)
			}
		}
		before, was := busy.Seen("fraud").Calls, idle.Seen("fraud").Calls
		call(40)
		if b, i := busy.Seen("fraud").Calls-before, idle.Seen("fraud").Calls-was; b != 0 || i != 40 {
			return fmt.Errorf("%d calls went to the busy server, %d to the idle one", b, i)
		}
		return nil
	})
}

func TestPodsOfAServiceAreItsEndpointsAndFollowTheirSlices(t *testing.T) {
	_, one := modelAt(t, "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(one)
	_, _ = modelAt(t, "127.0.0.2:"+port)
	slice := func(kind string, addresses ...string) string {
		var list []string
		for _, a := range addresses {
			list = append(list, fmt.Sprintf(`{"addresses":[%q],"conditions":{"ready":true}}`, a))
		}
		s := fmt.Sprintf(`{"metadata":{"name":"triton-x","resourceVersion":"2"},"addressType":"IPv4","ports":[{"name":"grpc","port":%s}],"endpoints":[%s]}`, port, strings.Join(list, ","))
		if kind != "" {
			s = fmt.Sprintf(`{"type":%q,"object":%s}`, kind, s)
		}
		return s
	}
	events := make(chan string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"1"},"items":[`+slice("", "127.0.0.1")+`]}`)
			return
		}
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case e := <-events:
				_, _ = io.WriteString(w, e+"\n")
			case <-r.Context().Done():
				return
			}
		}
	}))
	defer server.Close()
	account := t.TempDir()
	if err := os.WriteFile(filepath.Join(account, "token"), []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	resolver, err := k8s.New(k8s.Service{Namespace: "models", Name: "triton", Port: "grpc"}, k8s.Options{API: server.URL, Account: account})
	if err != nil {
		t.Fatal(err)
	}
	u, err := triton.New(triton.Options{Name: "triton", Resolver: resolver})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	until := func(want ...string) {
		t.Helper()
		eventually(t, fmt.Sprintf("endpoints %v", want), func() bool { return slices.Equal(u.Endpoints(), want) })
	}
	until("127.0.0.1:" + port)
	events <- slice("MODIFIED", "127.0.0.1", "127.0.0.2")
	until("127.0.0.1:"+port, "127.0.0.2:"+port)
	events <- slice("MODIFIED", "127.0.0.2")
	until("127.0.0.2:" + port)
	if _, err := u.Pool("fraud", "1").Pick(&inference.Call{}, nil); err != nil {
		t.Error(err)
	}
}

func TestAReloadThatAsksForAClusterOutsideOfOneChangesNothing(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, address := model(t)
	yaml := func(endpoints string) string {
		return "upstreams: {triton: {endpoints: \"" + endpoints + "\"}}\nmodels: [{name: fraud, targets: {v1: {version: 1}}}]\n"
	}
	r := gatewayOf(t, yaml(address), nil)
	next, err := config.Parse("test.yaml", []byte(yaml("k8s:///models/triton:8001")), func(name string) string {
		return map[string]string{"GATEWAY_DATA": "127.0.0.1:0", "GATEWAY_ADMIN": "127.0.0.1:0", "GATEWAY_DRAIN_BEFORE": "0s"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.gateway.Reload(next); err == nil || !strings.Contains(err.Error(), "upstreams.triton") || !strings.Contains(err.Error(), "inside a Kubernetes cluster") {
		t.Errorf("got %v", err)
	}
	if _, err := r.kserve().ModelInfer(t.Context(), fraudRequest()); err != nil {
		t.Errorf("after it: %v", err)
	}
}
