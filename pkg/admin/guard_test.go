package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/explain"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// fake is a gateway whose configuration changes to what next says when it is read again.
type fake struct {
	hash, next string
	ready      bool
}

func (f *fake) Ready() bool              { return f.ready }
func (f *fake) Stages() []string         { return []string{"observe", "forward"} }
func (f *fake) Catalog() []Model         { return []Model{} }
func (f *fake) Endpoints() []Endpoint    { return []Endpoint{} }
func (f *fake) Config() ([]byte, string) { return []byte("version: 1\n"), f.hash }

func (f *fake) Reload() error {
	if f.next == "" {
		return errors.New("models[0].name: is missing")
	}
	f.hash = f.next
	return nil
}

func (f *fake) Explain(_ context.Context, q explain.Question) (*explain.Report, error) {
	if q.Model == "" {
		return nil, fault.New(fault.InvalidArgument, "model is missing")
	}
	return &explain.Report{Question: q}, nil
}

// known has the callers sre, who is an operator, and bob, who is not; their keys are their names and "-key". A token of
// sre is "a.b.c".
type known struct{ none bool }

func (k known) ByKey(key string) *inference.Caller {
	if name, ok := strings.CutSuffix(key, "-key"); ok {
		return &inference.Caller{Name: name}
	}
	return nil
}

func (k known) Authenticate(_ context.Context, c *inference.Call) (*inference.Caller, string, error) {
	switch auth := c.Incoming["authorization"]; {
	case k.none:
		return nil, "", nil
	case len(auth) == 1 && auth[0] == "Bearer a.b.c":
		return &inference.Caller{Name: "sre"}, "", nil
	case len(auth)+len(c.Incoming["x-api-key"]) > 0:
		return nil, "", fault.New(fault.AuthInvalid, "the key is not one of any caller")
	}
	return nil, "", fault.New(fault.AuthMissing, "send a key as x-api-key")
}

func (known) Allows(c *inference.Caller, _ string, kind inference.Kind) bool {
	return c != nil && c.Name == "sre" && kind == inference.Admin
}

// get asks the port; headers come in pairs.
func get(t *testing.T, o Options, method, path, host string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	r.Host, r.RemoteAddr = host, "192.0.2.9:4711"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	Server(o).Handler.ServeHTTP(w, r)
	return w
}

func options(loopback bool) Options {
	f := &fake{hash: "old", next: "new", ready: true}
	return Options{
		Gateway: f, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { text(w, 200, "# metrics\n") }),
		Loopback: loopback, Callers: known{}, Access: known{}, Explainer: f,
	}
}

func TestProbesAndMetricsNeedNoCredential(t *testing.T) {
	for _, loopback := range []bool{true, false} {
		for _, path := range []string{"/livez", "/readyz", "/metrics"} {
			if w := get(t, options(loopback), http.MethodGet, path, "pod-3:8081"); w.Code != 200 {
				t.Errorf("loopback %v, %s: %d", loopback, path, w.Code)
			}
		}
	}
}

func TestBeyondLoopbackEverythingElseTakesAnOperator(t *testing.T) {
	basic := func(password string) string {
		r := &http.Request{Header: http.Header{}}
		r.SetBasicAuth("anybody", password)
		return r.Header.Get("Authorization")
	}
	for name, c := range map[string]struct {
		headers []string
		want    int
		says    string
	}{
		"nothing":            {nil, 401, "send a key"},
		"a key":              {[]string{"X-Api-Key", "sre-key"}, 200, ""},
		"a bearer key":       {[]string{"Authorization", "Bearer sre-key"}, 200, ""},
		"a bearer key, loud": {[]string{"Authorization", "BEARER sre-key"}, 200, ""},
		"a token":            {[]string{"Authorization", "Bearer a.b.c"}, 200, ""},
		"a password":         {[]string{"Authorization", basic("sre-key")}, 200, ""},
		"a wrong key":        {[]string{"X-Api-Key", "nonsense"}, 401, "not one of any caller"},
		"an empty key":       {[]string{"X-Api-Key", ""}, 401, ""},
		"two keys":           {[]string{"X-Api-Key", "sre-key", "X-Api-Key", "sre-key"}, 401, ""},
		"two authorizations": {[]string{"Authorization", "Bearer sre-key", "Authorization", "Bearer bob-key"}, 401, ""},
		"a wrong password":   {[]string{"Authorization", basic("nonsense")}, 401, "password is a key"},
		"an empty password":  {[]string{"Authorization", basic("")}, 401, "password is a key"},
		"no scheme":          {[]string{"Authorization", "sre-key"}, 401, ""},
		"somebody else":      {[]string{"X-Api-Key", "bob-key"}, 403, `caller "bob" may not use the admin port`},
		"somebody's page":    {[]string{"Authorization", basic("bob-key")}, 403, `caller "bob" may not`},
	} {
		for _, path := range []string{"/pipeline", "/catalog", "/endpoints", "/config", "/explain?model=m", "/nowhere"} {
			w := get(t, options(false), http.MethodGet, path, "pod-3:8081", c.headers...)
			want := c.want
			if path == "/nowhere" && want == 200 {
				want = 404
			}
			if w.Code != want || !strings.Contains(w.Body.String(), c.says) {
				t.Errorf("%s, %s: %d %s", name, path, w.Code, w.Body)
			}
			if asks := w.Header().Get("WWW-Authenticate") != ""; asks != (w.Code == 401) {
				t.Errorf("%s, %s: %d and asks for a password: %v", name, path, w.Code, asks)
			}
			if strings.Contains(w.Body.String(), "nonsense") {
				t.Errorf("%s: the credential is repeated: %s", name, w.Body)
			}
		}
	}
}

func TestBeyondLoopbackNothingIsOpenByAccident(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no callers":                 func(o *Options) { o.Callers = nil },
		"no access":                  func(o *Options) { o.Access = nil },
		"nobody asked who it is":     func(o *Options) { o.Callers = known{none: true} },
		"nor with a credential sent": func(o *Options) { o.Callers = known{none: true} },
	} {
		o := options(false)
		change(&o)
		w := get(t, o, http.MethodGet, "/config", "127.0.0.1:8081", "Authorization", "Bearer x")
		if w.Code != 401 && w.Code != 403 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	o := options(false)
	o.Callers = known{none: true} // auth: none, and yet there are callers, one of whom is an operator
	if w := get(t, o, http.MethodGet, "/config", "pod-3:8081", "X-Api-Key", "sre-key"); w.Code != 200 {
		t.Errorf("an operator where auth is none: %d %s", w.Code, w.Body)
	}
}

func TestOnLoopbackOnlyWebPagesAreKeptOut(t *testing.T) {
	for name, c := range map[string]struct {
		method, host, origin string
		want                 int
	}{
		"a person":                  {"GET", "127.0.0.1:8081", "", 200},
		"by name":                   {"GET", "localhost:8081", "", 200},
		"by IPv6":                   {"GET", "[::1]:8081", "", 200},
		"a name that leads here":    {"GET", "evil.example:8081", "", 403},
		"an address elsewhere":      {"GET", "192.0.2.1:8081", "", 403},
		"a change":                  {"POST", "127.0.0.1:8081", "", 200},
		"a change by the page":      {"POST", "127.0.0.1:8081", "http://127.0.0.1:8081", 200},
		"a change by another page":  {"POST", "127.0.0.1:8081", "http://evil.example", 403},
		"a change by a file's page": {"POST", "127.0.0.1:8081", "null", 403},
		"a page of another port":    {"POST", "127.0.0.1:8081", "http://127.0.0.1:9999", 403},
	} {
		path := "/config"
		if c.method == "POST" {
			path = "/reload"
		}
		var headers []string
		if c.origin != "" {
			headers = []string{"Origin", c.origin}
		}
		if w := get(t, options(true), c.method, path, c.host, headers...); w.Code != c.want {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

func TestBeyondLoopbackTheHostMayBeAnyButNotTheOrigin(t *testing.T) {
	for origin, want := range map[string]int{
		"": 200, "http://gateway.prod": 200, "https://gateway.prod": 200, "https://evil.example": 403, "null": 403,
	} {
		headers := []string{"X-Api-Key", "sre-key"}
		if origin != "" {
			headers = append(headers, "Origin", origin)
		}
		if w := get(t, options(false), "POST", "/reload", "gateway.prod", headers...); w.Code != want {
			t.Errorf("origin %q: %d %s", origin, w.Code, w.Body)
		}
	}
}

func TestAChangeIsKeptWithWhoMadeItAndFromWhere(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		loopback bool
		next     string
		headers  []string
	}{
		{true, "new", nil},
		{true, "", nil},
		{true, "new", []string{"X-Api-Key", "bob-key"}},
		{false, "new", []string{"X-Api-Key", "sre-key"}},
		{false, "new", []string{"X-Api-Key", "bob-key"}}, // changes nothing, and leaves no line
	} {
		o := options(c.loopback)
		o.Gateway.(*fake).next = c.next
		o.Audit = NewAudit(slog.New(slog.DiscardHandler), func() string { return dir })
		o.Audit.now = aMoment
		get(t, o, "POST", "/reload", "localhost", c.headers...)
	}
	b, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "audit.log", b)
}

func TestAChangeThatFailsSaysWhyAndThatNothingChanged(t *testing.T) {
	o := options(true)
	o.Gateway.(*fake).next = ""
	w := get(t, o, "POST", "/reload", "localhost")
	var said map[string]string
	if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != 422 || said["config"] != "unchanged" || !strings.Contains(said["error"], "models[0].name") {
		t.Errorf("%d %s %v", w.Code, w.Body, err)
	}
	if w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("type %q", w.Header().Get("Content-Type"))
	}
}

func TestExplainAnswersAQuestionAndRefusesOneThatIsNone(t *testing.T) {
	w := get(t, options(true), "GET", "/explain?model=a%2Fb&user=ann&version=2&caller=sre&role=ml&address=::1&header=x-a%3Db%3Dc&header=x-a%3Dd&metadata=k%3Dv", "localhost")
	var r explain.Report
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || w.Code != 200 || !reflect.DeepEqual(r.Question, explain.Question{
		Model: "a/b", Version: "2", User: "ann", Caller: "sre", Role: "ml", Address: "::1",
		Headers: map[string][]string{"x-a": {"b=c", "d"}}, Metadata: map[string]string{"k": "v"},
	}) {
		t.Errorf("%d %s %v", w.Code, w.Body, err)
	}
	if w := get(t, options(true), "GET", "/explain", "localhost"); w.Code != 400 || !bytes.Contains(w.Body.Bytes(), []byte("model is missing")) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	o := options(true)
	o.Explainer = nil
	if w := get(t, o, "GET", "/explain?model=m", "localhost"); w.Code != 404 {
		t.Errorf("without an explainer: %d", w.Code)
	}
}
