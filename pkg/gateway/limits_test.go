package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/explain"
	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
)

// limited is a configuration with one limit on fraud, whose buckets hold n and next to never fill.
func limited(upstream, redis, draw string, n int) string {
	return fmt.Sprintf(`
version: 1
redis: {address: "%s", prefix: test, timeout: 1s}
upstreams: {triton: {kind: triton, endpoints: "%s"}}
models:
  - name: fraud
    limits: [{per: model, rate: %d/h, burst: %d, draw: %s}]
`, redis, upstream, max(n/100, 1), n, draw)
}

// admitted sends calls over gateways side by side and counts those that pass.
func admitted(t *testing.T, rigs []*rig, calls int) int {
	t.Helper()
	var passed, failed atomic.Int64
	var wg sync.WaitGroup
	next := make(chan int)
	for range 200 {
		wg.Go(func() {
			for i := range next {
				_, err := rigs[i%len(rigs)].kserve().ModelInfer(context.Background(), fraudRequest())
				switch status.Code(err) {
				case codes.OK:
					passed.Add(1)
				case codes.ResourceExhausted:
				default:
					failed.Add(1)
					t.Error(err)
				}
			}
		})
	}
	for i := range calls {
		next <- i
	}
	close(next)
	wg.Wait()
	return int(passed.Load())
}

func TestThreeGatewaysAdmitExactlyWhatABucketHolds(t *testing.T) {
	const bucket, calls = 1000, 10_000
	for draw, most := range map[string]int{
		"exact": bucket,
		"lease": 2 * bucket, // what shares may have let through before it was paid back, docs/limits.md
	} {
		t.Run(draw, func(t *testing.T) {
			redis := redistest.Start(t)
			rigs := make([]*rig, 3)
			for i := range rigs {
				_, upstream := model(t)
				rigs[i] = gatewayOf(t, limited(upstream, redis.Addr, draw, bucket), nil)
			}
			n := admitted(t, rigs, calls)
			t.Logf("%d of %d calls passed a bucket of %d", n, calls, bucket)
			if n > most || (draw == "exact" && n != bucket) {
				t.Errorf("%d calls passed, at most %d may", n, most)
			}
		})
	}
}

func TestALimitRefusesWithTheBucketAndWhenToTryAgain(t *testing.T) {
	_, upstream := model(t)
	r := gatewayOf(t, fmt.Sprintf(`
version: 1
upstreams: {triton: {kind: triton, endpoints: "%s"}}
models:
  - name: fraud
    limits: [{per: user, rate: 1/h, burst: 2}]
`, upstream), nil)
	as := func(user string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "x-user-id", user)
	}
	var err error
	for range 5 {
		if _, err = r.kserve().ModelInfer(as("ann"), fraudRequest()); err != nil {
			break
		}
	}
	s := status.Convert(err)
	if s.Code() != codes.ResourceExhausted {
		t.Fatalf("five calls of a bucket of two: %v", err)
	}
	quota, retry := false, false
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.QuotaFailure:
			quota = strings.Contains(d.Violations[0].Subject, "ann")
		case *errdetails.RetryInfo:
			retry = d.RetryDelay.AsDuration() > 0 && d.RetryDelay.AsDuration() <= time.Hour
		}
	}
	if !quota || !retry {
		t.Errorf("details %v", s.Details())
	}
	if _, err := r.kserve().ModelInfer(as("bob"), fraudRequest()); err != nil {
		t.Errorf("another user: %v", err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.address+"/v2/models/fraud/infer",
		strings.NewReader(`{"inputs":[{"name":"INPUT","datatype":"FP32","shape":[1,16],"data":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}]}`))
	req.Header.Set("x-user-id", "ann")
	a, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	if a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" || a.Header.Get("RateLimit-Limit") == "" {
		t.Errorf("%s %v", a.Status, a.Header)
	}
}

func TestRedisGoneSilentOrBackIsNoErrorToAnybody(t *testing.T) { // O-22, O-23
	redis := redistest.Start(t)
	_, upstream := model(t)
	r := gatewayOf(t, fmt.Sprintf(`
version: 1
redis: {address: "%s", prefix: test}
upstreams: {triton: {kind: triton, endpoints: "%s"}}
models:
  - name: fraud
    limits: [{per: model, rate: 100000/s, draw: exact}]
`, redis.Addr, upstream), nil)
	for _, step := range []struct {
		name    string
		trouble func()
	}{
		{"flushed", func() { redis.Do("SCRIPT", "FLUSH") }},
		{"silent", redis.Pause},
		{"answering again", redis.Resume},
		{"gone", redis.Stop},
		{"back", redis.Restart},
	} {
		step.trouble()
		for range 20 {
			if _, err := r.kserve().ModelInfer(t.Context(), fraudRequest()); err != nil {
				t.Errorf("Redis %s: %v", step.name, err)
			}
		}
	}
}

func TestExplainSaysWhatIsLeftForAnAddress(t *testing.T) {
	_, upstream := model(t)
	yaml := `
version: 1
%s
limits: [{name: edge, per: ip, rate: 100/h, burst: 100}]
upstreams: {triton: {kind: triton, endpoints: "%s"}}
models: [{name: fraud}]
`
	for name, store := range map[string]string{
		"memory": "", "redis": fmt.Sprintf(`redis: {address: "%s", prefix: test, timeout: 1s}`, redistest.Start(t).Addr),
	} {
		r := gatewayOf(t, fmt.Sprintf(yaml, store, upstream), nil)
		for range 7 {
			if _, err := r.kserve().ModelInfer(t.Context(), fraudRequest()); err != nil {
				t.Fatal(err)
			}
		}
		for address, want := range map[string]float64{"127.0.0.1": 93, "::ffff:127.0.0.1": 93, "192.0.2.1": 100, "2001:db8::1": 100, "": -1} {
			// A lease under way is with the store and not yet here: for that moment nobody can tell.
			eventually(t, fmt.Sprintf("%s, %q: %v left", name, address, want), func() bool {
				report, err := r.gateway.explainer().Explain(t.Context(), explain.Question{Model: "fraud", Address: address})
				if err != nil || len(report.Limits) != 1 {
					t.Fatalf("%s: %+v, %v", name, report, err)
				}
				l := report.Limits[0]
				if want < 0 {
					return l.Left == nil && strings.Contains(l.Note, "no address")
				}
				return l.Left != nil && *l.Left >= want && *l.Left <= want+1
			})
		}
		report, err := r.gateway.explainer().Explain(t.Context(), explain.Question{Model: "fraud", Address: "2001:db8::1"})
		if err != nil || report.Limits[0].Subject != "2001:db8::/64" {
			t.Errorf("%+v, %v", report, err)
		}
	}
}
