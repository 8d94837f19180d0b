package triton

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// seatsOf are the seats of a version of m at endpoints on which so many of our calls are under way.
func seatsOf(u *Upstream, busy ...int64) []*seat {
	p := &pool{up: u, model: "m", version: "1"}
	var seats []*seat
	for i, n := range busy {
		e := &endpoint{inflight: new(underWay), up: u, name: fmt.Sprint(i)}
		e.inflight.Store(n)
		seats = append(seats, &seat{pool: p, ep: e})
	}
	return seats
}

func waiting(s *seat, at time.Time, n int64) {
	s.ep.pending.Store(&pending{at: at, count: map[poolKey]int64{{"m", "1"}: n, {"m", "2"}: 1000}})
}

func TestCallsGoWhereLessHasToBeWaitedFor(t *testing.T) {
	now := time.Now()
	u := &Upstream{}
	for _, c := range []struct {
		name  string
		set   func(s []*seat)
		first int
	}{
		{"nothing is known: our own calls decide", func([]*seat) {}, 1},
		{"what others have waiting there counts", func(s []*seat) { waiting(s[0], now, 0); waiting(s[1], now, 50) }, 0},
		{"and our own calls with it", func(s []*seat) { waiting(s[0], now, 1); waiting(s[1], now, 2) }, 1},
		{"one number that is not known is none", func(s []*seat) { waiting(s[1], now, 50) }, 1},
		{"numbers that are old are none", func(s []*seat) { waiting(s[0], now, 0); waiting(s[1], now.Add(-pendingStale-1), 50) }, 1},
		{"a server that does not list the version says nothing", func(s []*seat) { waiting(s[1], now, 50); s[0].ep.pending.Store(&pending{at: now}) }, 1},
	} {
		seats := seatsOf(u, 5, 2)
		c.set(seats)
		for range 20 { // whichever is drawn first
			less, more := seats[0].pool.shorter(now, seats)
			if less != seats[c.first] || more == less {
				t.Errorf("%s: endpoint %s was chosen", c.name, less.ep.name)
				break
			}
		}
	}
	if u.scrapes.wanted.Load() != now.Unix() {
		t.Error("nobody would read the metrics")
	}
}

func TestMetricsAreReadForThePendingRequestsAlone(t *testing.T) {
	got, err := parsePending(strings.NewReader(`# HELP nv_inference_pending_request_count Instantaneous number of pending requests awaiting execution per-model.
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="fraud",version="1"} 3
nv_inference_pending_request_count{model="fraud",version="2"} 0.000000 1700000000000
nv_inference_pending_request_count{ version="7" , model="a\"b\\c\nd",zone="x"} 12
nv_inference_pending_request_count{model="big",version="1"} 1e99
nv_inference_pending_request_count{model="twice",version="1",gpu="a"} 1
nv_inference_pending_request_count{model="twice",version="1",gpu="b"} 2
nv_inference_pending_request_count{model="nan",version="1"} NaN
nv_inference_pending_request_count{model="negative",version="1"} -1
nv_inference_pending_request_count{model="none",version="1"}
nv_inference_pending_request_count{model="open
nv_inference_pending_request_count{version="1"} 4
nv_inference_pending_request_count 5
nv_inference_pending_request_count_total{model="fraud",version="1"} 6
nv_inference_count{model="fraud",version="1"} 7
`))
	want := map[poolKey]int64{{"fraud", "1"}: 3, {"fraud", "2"}: 0, {"a\"b\\c\nd", "7"}: 12, {"big", "1"}: 1 << 30, {"twice", "1"}: 3}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(poolKey{})); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := parsePending(bytes.NewReader(make([]byte, maxScrapeLine+1))); err == nil {
		t.Error("a line without an end was taken")
	}
}

func TestTheAddressOfMetricsHasTheEndpointsHost(t *testing.T) {
	for endpoint, want := range map[string]string{
		"10.0.0.1:8001":     "http://10.0.0.1:8002/metrics",
		"[fd00::1]:8001":    "http://[fd00::1]:8002/metrics",
		"triton-0.x.y:8001": "http://triton-0.x.y:8002/metrics",
	} {
		if got := addressOf("http://{host}:8002/metrics", endpoint); got != want {
			t.Errorf("%s: %s, want %s", endpoint, got, want)
		}
	}
}

func TestMetricsAreReadWhileCallsArePlacedByThemAndFailuresLeaveTheLastOnes(t *testing.T) {
	answers := make(chan string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case text := <-answers:
			if text == "" {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = w.Write([]byte(text))
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(server.URL, "http://"))
	u, err := New(Options{Name: "triton", Endpoints: []string{net.JoinHostPort(host, "1")}, Metrics: "http://{host}:" + port + "/metrics"})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	s := &seat{pool: &pool{up: u, model: "m", version: "1"}, ep: u.list()[0]}
	u.scrapes.wanted.Store(time.Now().Unix())
	answers <- pendingName + `{model="m",version="1"} 9` + "\n"
	answers <- "" // is asked for when the one before has been dealt with
	first := s.ep.pending.Load()
	if n, ok := s.queued(time.Now()); n != 9 || !ok {
		t.Errorf("%d, %v", n, ok)
	}
	answers <- ""
	if s.ep.pending.Load() != first {
		t.Error("a failure changed what was known")
	}
	if _, ok := s.queued(first.at.Add(pendingStale + 1)); ok {
		t.Error("it is still believed when it is old")
	}
}

func TestNobodyReadsMetricsWhileNoCallIsPlacedByThem(t *testing.T) {
	u, err := New(Options{Name: "triton", Endpoints: []string{"127.0.0.1:1"}, Metrics: "http://{host}:1/metrics"})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	p := u.pool("m", "1")
	for _, pick := range []inference.Pick{inference.LeastLoaded, inference.RoundRobin, inference.HashUser} {
		if _, err := p.Pick(&inference.Call{Start: time.Now(), Model: &inference.Model{Pick: pick}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if u.scrapes.wanted.Load() != 0 {
		t.Error("metrics would be read")
	}
}

func FuzzPending(f *testing.F) {
	f.Add([]byte(pendingName + `{model="fraud",version="1"} 3` + "\n"))
	f.Add([]byte(pendingName + `{model="a\"b\\",x="}"} 1e3 17` + "\n" + pendingName + `{} 1`))
	f.Add([]byte(pendingName + `{model=`))
	f.Fuzz(func(t *testing.T, b []byte) {
		count, _ := parsePending(bytes.NewReader(b))
		for key, n := range count {
			if key.model == "" || n < 0 || len(key.model) > maxScrapeName {
				t.Fatalf("%+v: %d", key, n)
			}
		}
	})
}

func BenchmarkPickByQueueDepth(b *testing.B) {
	now := time.Now()
	seats := seatsOf(&Upstream{}, 1, 2, 3, 4)
	for _, s := range seats {
		waiting(s, now, 3)
	}
	b.ReportAllocs()
	for b.Loop() {
		seats[0].pool.shorter(now, seats)
	}
}
