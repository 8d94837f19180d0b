package httpfront

import (
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPathsThatLeadNowhereSayWhereToLook(t *testing.T) {
	for _, path := range []string{"/", "/v3", "/v2/models", "/v2/models/team/bert/ready", "/metrics", "/v1/predict/x", "/api/models/x/load", "//v2"} {
		w := send(front(Config{}), "GET", path, "")
		wantStatus(t, w, 404, `"reason":"NO_SUCH_PATH"`, "POST /v1/predict", "%2F")
	}
}

func TestAWrongMethodIsToldTheRightOne(t *testing.T) {
	for _, c := range []struct{ method, path, allow string }{
		{"GET", "/v1/predict", "POST"}, {"GET", "/v2/models/m/infer", "POST"}, {"POST", "/v2", "GET, HEAD"}, {"DELETE", "/v2/logging", "GET, HEAD, POST"}, {"POST", "/readyz", "GET, HEAD"},
	} {
		w := send(front(Config{}), c.method, c.path, "")
		wantStatus(t, w, 405, `"reason":"METHOD_NOT_ALLOWED"`, c.allow)
		if got := w.Header().Get("Allow"); got != c.allow {
			t.Errorf("%s %s: Allow %q, want %q", c.method, c.path, got, c.allow)
		}
	}
}

func TestProbes(t *testing.T) {
	for _, c := range []struct {
		path       string
		live       bool // asks for liveness, else readiness
		unwell     int
		good, fail string
	}{
		{"/livez", true, 503, `{"live":true}`, `{"live":false}`},
		{"/readyz", false, 503, `{"ready":true}`, `{"ready":false}`},
		{"/api/status", false, 503, `{"ready":true}`, `{"ready":false}`},
		{"/api/health/live", true, 503, `{"live":true}`, `{"live":false}`},
		{"/api/health/ready", false, 503, `{"ready":true}`, `{"ready":false}`},
		{"/v2/health/live", true, 400, "", ""},
		{"/v2/health/ready", false, 400, "", ""},
	} {
		for _, well := range []bool{true, false} {
			other := func() bool { return !well }
			cfg := Config{Live: other, Ready: other}
			ask := func() bool { return well }
			if c.live {
				cfg.Live = ask
			} else {
				cfg.Ready = ask
			}
			w := send(front(cfg), "GET", c.path, "")
			status, body := 200, c.good
			if !well {
				status, body = c.unwell, c.fail
			}
			if w.Code != status || w.Body.String() != body {
				t.Errorf("%s, well %t: %d %s", c.path, well, w.Code, w.Body)
			}
		}
	}
}

func TestMetricsAreServedWhereTheyAreOn(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "gateway_up 1\n") })
	wantBody(t, send(front(Config{Metrics: h}), "GET", "/metrics", ""), "gateway_up 1\n")
	wantStatus(t, send(front(Config{}), "GET", "/metrics", ""), 404)
}

func TestIncomingKeepsTheCallsMetadataOnly(t *testing.T) { // O-04
	in, err := Incoming(http.Header{
		"Sig-Bin": {"AP8K", "AP8=, CgA"}, "X-User-Id": {"a", "b"}, "Authorization": {"Bearer x"}, "User-Agent": {"curl"},
		"Connection": {"keep-alive, X-Hop"}, "X-Hop": {"1"}, "Keep-Alive": {"1"}, "Te": {"trailers"}, "Transfer-Encoding": {"chunked"}, "Host": {"h"},
		"Content-Length": {"1"}, "Content-Type": {"a"}, "Content-Encoding": {"gzip"}, "Accept": {"*/*"}, "Accept-Encoding": {"gzip"}, "Grpc-Timeout": {"1S"}, "Grpc-Tags-Bin": {"!"},
		":authority": {"x"}, "Proxy-Authorization": {"p"}, "Expect": {"100-continue"}, "Upgrade": {"h2c"}, "Trailer": {"x"}, "X-Request-Timeout": {"1s"},
		"Inference-Header-Content-Length": {"3"}, "Odd!Name": {"1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"sig-bin": {"\x00\xff\x0a", "\x00\xff", "\x0a\x00"}, "x-user-id": {"a", "b"}, "authorization": {"Bearer x"}, "user-agent": {"curl"}}
	if diff := cmp.Diff(want, in); diff != "" {
		t.Error(diff)
	}
}

func TestABrokenBinaryHeaderIsRefusedByName(t *testing.T) {
	p := &pipeline{}
	w := send(front(Config{Pipeline: p}), "POST", "/v1/predict", `{"model_name":"a"}`, "Sig-Bin", "*", "X-Request-Id", "abc")
	wantStatus(t, w, 400, "sig-bin")
	if len(p.frames) != 0 || !slices.Equal(p.calls[0].Incoming["x-request-id"], []string{"abc"}) {
		t.Error("the refused call must keep its other metadata, where its id is")
	}
}

func FuzzPath(f *testing.F) {
	for _, p := range []string{"/v2/models/a/infer", "/v2/models/%2F/versions/1", "/", "", "/%", "//", "/v2/models/%zz/ready"} {
		f.Add(p)
	}
	routes := front(Config{}).routes
	f.Fuzz(func(t *testing.T, path string) {
		if r, vars := routes.find(path); r != nil {
			for name, v := range vars {
				if v == "" {
					t.Errorf("%q of %q is empty", name, path)
				}
			}
		}
	})
}
