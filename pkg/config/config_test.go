package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// env makes an environment of pairs NAME=value.
func env(pairs ...string) func(string) string {
	return func(name string) string {
		for _, p := range pairs {
			if value, ok := strings.CutPrefix(p, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

// good compiles a text that has no mistakes.
func good(t *testing.T, text string, pairs ...string) *Config {
	t.Helper()
	c, err := Parse("gateway.yaml", []byte(text), env(pairs...))
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	return c
}

// wrongs are the mistakes of a text, a line each.
func wrongs(t *testing.T, text string, pairs ...string) []string {
	t.Helper()
	c, err := Parse("gateway.yaml", []byte(text), env(pairs...))
	var mistakes Errors
	if !errors.As(err, &mistakes) || c != nil {
		t.Fatalf("%s\ngives (%v, %v), not its mistakes", text, c, err)
	}
	return strings.Split(err.Error(), "\n")
}

const oneUpstream = "upstreams: {triton: {endpoints: triton:8001}}\n"

func TestTheServedExampleCompilesToWhatItSays(t *testing.T) {
	c, err := Load("../../docs/examples/gateway.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	second := time.Second
	defaults := inference.Timeouts{Max: 60 * second, FirstAnswer: 30 * second, Idle: 60 * second, Dynamic: defaultDynamic}
	fraud, cnn := defaults, defaults
	fraud.Max, cnn.Max = 2*second, 10*second
	want := &Config{
		Path: "../../docs/examples/gateway.yaml", Source: c.Source, Hash: c.Hash,
		Listen:     Listen{Data: ":8080", Admin: "127.0.0.1:8081", Metrics: MetricsBoth, MaxMessage: 64 << 20, MaxReads: 256, DrainBefore: 5 * second, DrainGrace: 20 * second, MaxAge: 1800 * second},
		AuthStated: true, Replicas: 1, Lua: Lua{Dir: "scripts/lua", Deadline: 2 * time.Millisecond},
		Control:  []string{"repository"},
		StateDir: "/var/lib/model-gateway",
		Defaults: defaults,
		Breaker:  defaultBreaker, Retry: defaultRetry,
		Upstreams: []Upstream{{Name: "triton", Kind: Triton, DNS: "triton:8001", Traceparent: TraceSampled}},
		Models: []Model{
			{
				Name: "fraud", Upstream: "triton", UpstreamModel: "fraud", Stable: "model_v1", Fallback: &Fallback{Score: number(0.5), Predict: true, V2: true, Outage: true}, Pins: PinsDeclared, Timeouts: fraud, Breaker: defaultBreaker, Retry: defaultRetry,
				Targets: []Target{
					{Name: "model_v1", Upstream: "triton", Model: "fraud", Version: "1"},
					{Name: "model_v2", Upstream: "triton", Model: "fraud", Version: "2"},
				},
				SetHeaders: map[string]string{"x-mesh-route": "{target}"},
				Tensors: &inference.Tensors{
					Inputs: []inference.Tensor{{Name: "INPUT", Datatype: "FP32", Shape: []int64{-1, 16}}},
					Output: "SCORE", Confidence: inference.Confidence{Output: "SCORE", Reduce: "max"},
				},
			},
			{Name: "images/cnn", Upstream: "triton", UpstreamModel: "cnn", Pins: PinsAny, Timeouts: cnn, Breaker: defaultBreaker, Retry: defaultRetry},
		},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
	if len(c.Source) == 0 || len(c.Hash) != 64 {
		t.Error("source and hash are not those of the file")
	}
}

func TestAFileOfUpstreamsOnlyLetsEveryNameThrough(t *testing.T) {
	c := good(t, oneUpstream)
	if !c.Passthrough || len(c.Models) != 0 {
		t.Errorf("passthrough %v, models %v", c.Passthrough, c.Models)
	}
	if c = good(t, oneUpstream+"models: [{name: a}]"); c.Passthrough {
		t.Error("declaring a model leaves every other name open")
	}
	if c = good(t, oneUpstream+"passthrough: true\nmodels: [{name: a}]"); !c.Passthrough {
		t.Error("passthrough: true is not heard")
	}
}

func TestATritonHostAloneIsACompleteConfiguration(t *testing.T) {
	for host, want := range map[string]Upstream{
		"triton:8001":           {Endpoints: []string{"triton:8001"}},
		" triton:8001\n":        {Endpoints: []string{"triton:8001"}},
		"a:8001, b:8001,a:8001": {Endpoints: []string{"a:8001", "b:8001"}},
		"dns:///triton:8001":    {DNS: "triton:8001"},
		"[::1]:8001":            {Endpoints: []string{"[::1]:8001"}},
		"10.1.2.3:8001":         {Endpoints: []string{"10.1.2.3:8001"}},
	} {
		c, err := Load("", env("TRITON_GRPC_HOST="+host))
		if err != nil {
			t.Errorf("%q: %v", host, err)
			continue
		}
		want.Name, want.Kind, want.Traceparent = "triton", Triton, TraceSampled
		if diff := cmp.Diff([]Upstream{want}, c.Upstreams); diff != "" {
			t.Errorf("%q: %s", host, diff)
		}
		if !c.Passthrough || c.Listen.Data != ":8080" || c.Listen.Admin != "127.0.0.1:8081" || c.Listen.MaxMessage != 64<<20 {
			t.Errorf("%q: %+v", host, c)
		}
	}
}

func TestTheEnvironmentWinsForListenAndTheFileForTheRest(t *testing.T) {
	file := oneUpstream + "state_dir: /file\nlisten: {data: :1, admin: :2, metrics: admin, max_message: 1MiB, drain: {before: 1s, grace: 2s}}"
	c := good(t, file, "GATEWAY_DATA=:9000", "GATEWAY_ADMIN=off", "GATEWAY_METRICS=both", "GATEWAY_MAX_MESSAGE=2MiB",
		"GATEWAY_DRAIN_BEFORE=0", "GATEWAY_DRAIN_GRACE=7s", "GATEWAY_STATE_DIR=/env", "TRITON_GRPC_HOST=elsewhere:8001")
	want := Listen{Data: ":9000", Metrics: MetricsBoth, MaxMessage: 2 << 20, MaxReads: 256, DrainGrace: 7 * time.Second, MaxAge: 30 * time.Minute}
	if c.Listen != want {
		t.Errorf("listen is %+v", c.Listen)
	}
	if c.StateDir != "/env" {
		t.Errorf("state_dir is %s", c.StateDir)
	}
	if c.Upstreams[0].Endpoints[0] != "triton:8001" || len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "TRITON_GRPC_HOST") {
		t.Errorf("upstreams %v, notes %q", c.Upstreams, c.Notes)
	}
	if got := good(t, file).Listen; got.Data != ":1" || got.Admin != ":2" || got.Metrics != MetricsAdmin || got.DrainBefore != time.Second {
		t.Errorf("without an environment, listen is %+v", got)
	}
}

func TestUpstreamsComeFromTheEnvironmentWhereTheFileDeclaresNone(t *testing.T) {
	c := good(t, "models: [{name: m, targets: {v1: {upstream: b, version: 3}}}, {name: n, upstream: a}]",
		"GATEWAY_UPSTREAMS=a=one:8001,two:8001; b=dns:///three:8001;")
	want := []Upstream{
		{Name: "a", Kind: Triton, Endpoints: []string{"one:8001", "two:8001"}, Traceparent: TraceSampled},
		{Name: "b", Kind: Triton, DNS: "three:8001", Traceparent: TraceSampled},
	}
	if diff := cmp.Diff(want, c.Upstreams); diff != "" {
		t.Error(diff)
	}
	if got := c.Upstreams[1].Addresses(); !slices.Equal(got, []string{"dns:///three:8001"}) {
		t.Errorf("addresses are %q", got)
	}
	if u, ok := c.Upstream("a"); !ok || !slices.Equal(u.Addresses(), []string{"one:8001", "two:8001"}) {
		t.Errorf("a is %v, %v", u, ok)
	}
	if _, ok := c.Upstream("c"); ok {
		t.Error("an upstream nobody declared is found")
	}
}

func TestABadEnvironmentIsAMistakeThatNamesTheVariable(t *testing.T) {
	for pair, want := range map[string]string{
		"GATEWAY_DATA=8080":                  "GATEWAY_DATA: must be host:port or :port, such as :8080 (environment)",
		"GATEWAY_ADMIN=no":                   "GATEWAY_ADMIN: must be host:port, :port or off, such as 127.0.0.1:8081 (environment)",
		"GATEWAY_METRICS=all":                "GATEWAY_METRICS: must be admin or both (environment)",
		"GATEWAY_MAX_MESSAGE=2GiB":           "GATEWAY_MAX_MESSAGE: must be at most 2GiB less one byte (2047MiB), the most a message can have (environment)",
		"GATEWAY_DRAIN_GRACE=soon":           "GATEWAY_DRAIN_GRACE: must be a length of time above zero and up to 24h, such as 500ms, 30s or 1m30s (environment)",
		"GATEWAY_STATE_DIR=/a\x00b":          "GATEWAY_STATE_DIR: must be a folder's path (environment)",
		"TRITON_GRPC_HOST=triton":            "TRITON_GRPC_HOST: must be host:port, such as triton:8001 (environment)",
		"TRITON_GRPC_HOST=a:8001,dns:///b:1": "TRITON_GRPC_HOST: must be host:port: dns:///host:port and k8s:///namespace/service:port stand by themselves, outside any list (environment)",
		"GATEWAY_UPSTREAMS=triton:8001":      "GATEWAY_UPSTREAMS: must be name=host:port,host:port;name=dns:///host:port (environment)",
		"GATEWAY_UPSTREAMS=a=b:1;a=c:1":      "GATEWAY_UPSTREAMS: names a a second time (environment)",
		"GATEWAY_UPSTREAMS=a b=b:1":          `GATEWAY_UPSTREAMS: the name "a b" must be 1 to 64 letters, digits, dots, dashes or underscores (environment)`,
		"GATEWAY_UPSTREAMS=a=xds:///b:1":     "GATEWAY_UPSTREAMS: xds:// is not served by this version; use host:port, a list of them, dns:///host:port or k8s:///namespace/service:port (environment)",
		"GATEWAY_UPSTREAMS=;":                "GATEWAY_UPSTREAMS: must be name=host:port,host:port;name=dns:///host:port (environment)",
		"GATEWAY_NOTHING=":                   "upstreams: must name at least one upstream, or the environment must: TRITON_GRPC_HOST=host:port",
	} {
		t.Run(pair, func(t *testing.T) {
			pairs := []string{pair}
			if !strings.Contains(want, "upstream") && !strings.HasPrefix(want, "GATEWAY_UPSTREAMS") && !strings.HasPrefix(want, "TRITON") {
				pairs = append(pairs, "TRITON_GRPC_HOST=triton:8001")
			}
			if got := wrongs(t, "", pairs...); !slices.Equal(got, []string{want}) {
				t.Errorf("got %q", got)
			}
		})
	}
	got := wrongs(t, "", "TRITON_GRPC_HOST=a:1", "GATEWAY_UPSTREAMS=a=b:1")
	if len(got) != 1 || !strings.Contains(got[0], "beside TRITON_GRPC_HOST") {
		t.Errorf("both at once: %q", got)
	}
}

func TestNamesOfAnyScriptAreModelNames(t *testing.T) {
	for _, name := range []string{"fraud", "team/bert", "模型-1", "a b", "Ünï", "model:v1", strings.Repeat("x", 256)} {
		c := good(t, oneUpstream+fmt.Sprintf("models: [{name: %q}]", name))
		if c.Models[0].Name != name || c.Models[0].UpstreamModel != name {
			t.Errorf("%q became %+v", name, c.Models[0])
		}
	}
	for _, name := range []string{strings.Repeat("x", 257), "{a}", "a\tb", "\u2028", "a\u0085b"} {
		if got := wrongs(t, oneUpstream+fmt.Sprintf("models: [{name: %q}]", name)); len(got) != 1 {
			t.Errorf("%q: %q", name, got)
		}
	}
}

func TestTargetsKeepTheOrderOfTheFile(t *testing.T) {
	c := good(t, oneUpstream+"models: [{name: m, stable: z, targets: {z: {version: 1}, b: {version: 2}, a: {version: 3, model: other}}}]")
	var got []string
	for _, x := range c.Models[0].Targets {
		got = append(got, x.Name+" "+x.Model+" "+x.Version)
	}
	if want := []string{"z m 1", "b m 2", "a other 3"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	c = good(t, "upstreams: {z: {endpoints: a:1}, a: {endpoints: a:2}}\npassthrough: true")
	if c.Upstreams[0].Name != "z" {
		t.Error("upstreams are not in the file's order")
	}
}

func TestAModelNeedsToSayOnlyWhatIsNotClear(t *testing.T) {
	c := good(t, oneUpstream+"defaults: {timeout: {max: 5s}}\nmodels: [{name: m, targets: {only: {version: '7'}}, timeout: {idle: 1s}}]")
	want := Model{
		Name: "m", Upstream: "triton", UpstreamModel: "m", Stable: "only", Pins: PinsDeclared,
		Targets:  []Target{{Name: "only", Upstream: "triton", Model: "m", Version: "7"}},
		Timeouts: inference.Timeouts{Max: 5 * time.Second, FirstAnswer: defaultFirstAnswer, Idle: time.Second, Dynamic: defaultDynamic},
		Breaker:  defaultBreaker, Retry: defaultRetry,
	}
	if diff := cmp.Diff(want, c.Models[0]); diff != "" {
		t.Error(diff)
	}
	c = good(t, `upstreams: {a: {endpoints: a:1}, b: {endpoints: b:1}}
models: [{name: m, upstream: b, model: mm, pins: any, stable: x, targets: {x: {version: 1}, y: {version: 1, upstream: a}}}]`)
	if got := c.Models[0].Targets; got[0].Upstream != "b" || got[1].Upstream != "a" || got[1].Model != "mm" || c.Models[0].Pins != PinsAny {
		t.Errorf("got %+v", c.Models[0])
	}
}

func TestAddressesAreTextWhereverTheyStand(t *testing.T) {
	for _, text := range []string{
		"upstreams: {triton: {endpoints: [a:8001, b:8001]}}",
		"upstreams: {triton: {endpoints: [ a:8001 , b:8001 ]}}",
		"upstreams:\n  triton:\n    endpoints: [a:8001, b:8001]",
		"upstreams:\n  triton:\n    endpoints:\n      - a:8001\n      - b:8001",
		"upstreams:\n  triton: {endpoints: [\n    a:8001,\n    \"b:8001\"]}",
		"\uFEFFupstreams: {triton: {endpoints: [a:8001, b:8001]}}",
		"upstreams: {triton: {endpoints: [a:8001, b:8001]}}\r\n# end\r\n",
	} {
		if got := good(t, text).Upstreams[0].Endpoints; !slices.Equal(got, []string{"a:8001", "b:8001"}) {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got := wrongs(t, "upstreams: {triton: {endpoints: [a: 8001]}}"); !strings.Contains(got[0], "must be text, not a mapping") {
		t.Errorf("a mapping is taken for an address: %q", got)
	}
}

func TestNullIsAsIfTheFieldWereNotThere(t *testing.T) {
	c := good(t, oneUpstream+"listen:\nmodels:\nstate_dir: ~\nauth: null\ncontrol:\n")
	if c.Listen.Data != ":8080" || c.Models != nil || c.StateDir != "" {
		t.Errorf("got %+v", c)
	}
}

func TestAnchorsAreExpandedAndBombsAreNot(t *testing.T) {
	c := good(t, oneUpstream+"models:\n  - {name: a, timeout: &t {max: 3s, idle: 4s}}\n  - {name: b, timeout: {<<: *t, idle: 5s}}\n  - {name: c, timeout: *t}")
	if got := c.Models[1].Timeouts; got.Max != 3*time.Second || got.Idle != 5*time.Second {
		t.Errorf("merged: %v", got)
	}
	if got := c.Models[2].Timeouts; got.Idle != 4*time.Second {
		t.Errorf("alias: %v", got)
	}
	for name, bomb := range map[string]string{
		"values":  oneUpstream + "models:\n  - &m {name: m, set_headers: {" + headers(1000) + "}}\n" + strings.Repeat("  - *m\n", 5_000),
		"skipped": oneUpstream + "models:\n  - &m {name: m, limits: [" + strings.Repeat("x,", 1000) + "x]}\n" + strings.Repeat("  - *m\n", 5_000),
		"merged":  oneUpstream + "models:\n  - &m {name: m, set_headers: &h {" + headers(1000) + "}}\n" + strings.Repeat("  - {set_headers: {<<: *h}}\n", 5_000),
	} {
		if got := wrongs(t, bomb); len(got) != 1 || !strings.HasPrefix(got[0], "has more than 200000 values") {
			t.Errorf("%s: %d mistakes, the first %q", name, len(got), got[0])
		}
	}
}

func TestWhatNoPersonWritesIsRefusedBeforeItIsParsed(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("[", 1000):                            "is nested too deeply",
		strings.Repeat("{", 1000):                            "is nested too deeply",
		strings.Repeat("- ", 1000):                           "is nested too deeply",
		strings.Repeat("? ", 1000):                           "is nested too deeply",
		steps(100):                                           "is nested too deeply",
		"models: [" + strings.Repeat(",", 1000):              "is not YAML: there is nothing between two commas",
		strings.Repeat("*a ", 20_000):                        "is the 10001th anchor, alias, tag or ? of the file; at most 10000",
		strings.Repeat("? a\n", 20_000):                      "is the 10001th anchor, alias, tag or ? of the file; at most 10000",
		strings.Repeat("a: 1\n", 3000):                       "is one key too many; a mapping has at most 2000",
		"models:\n  - " + strings.Repeat("a: 1\n    ", 3000): "is one key too many; a mapping has at most 2000",
	} {
		got := wrongs(t, text)
		if len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%.20q: %q", text, got)
		}
	}
	many := oneUpstream + "models:\n"
	for i := range 5000 {
		many += fmt.Sprintf("  - name: m%d\n    targets:\n      v1:\n        version: 1\n", i)
	}
	if got := len(good(t, many).Models); got != 5000 {
		t.Errorf("of 5000 models there are %d", got)
	}
}

// steps is mappings in one another, a column each.
func steps(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func headers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "x-%d: a, ", i)
	}
	return b.String()
}

func TestMistakesBeyondTheFirstAreCounted(t *testing.T) {
	got := wrongs(t, oneUpstream+"models:\n"+strings.Repeat("  - {nam: a}\n", 1000))
	if len(got) != maxMistakes+1 || got[maxMistakes] != "and 1800 more mistakes, shown once these are mended" {
		t.Errorf("%d lines, the last %q", len(got), got[len(got)-1])
	}
}

func TestAFileThatIsTooLargeIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(path, []byte(oneUpstream+"#"+strings.Repeat("x", MaxFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, nil); err == nil || err.Error() != "is larger than 1 MiB, the most a configuration may have" {
		t.Errorf("got %v", err)
	}
}

func TestAFileThatCannotBeReadIsAMistake(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "none.yaml"), dir} {
		_, err := Load(path, nil)
		var mistakes Errors
		if !errors.As(err, &mistakes) || mistakes[0].File != path || !strings.HasPrefix(mistakes[0].Msg, "cannot be read") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestWhatNeedsARestartIsNamed(t *testing.T) {
	old := good(t, oneUpstream)
	next := good(t, oneUpstream+"listen: {data: :1, admin: off, max_message: 1MiB}\nmodels: [{name: a}]")
	if got, want := NeedsRestart(old, next), []string{"listen.data", "listen.admin", "listen.max_message"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := NeedsRestart(old, good(t, oneUpstream+"models: [{name: a}]")); got != nil {
		t.Errorf("models need a restart: %q", got)
	}
	// A field of Listen that NeedsRestart forgets would be accepted by a reload and ignored.
	for i := range reflect.TypeFor[Listen]().NumField() {
		changed := *old
		switch f := reflect.ValueOf(&changed.Listen).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString("changed")
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		default:
			f.SetInt(1)
		}
		if len(NeedsRestart(old, &changed)) != 1 {
			t.Errorf("a change of listen's field %d goes unseen", i)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[Size]int{
		"1": 1, "512KiB": 512 << 10, "64MiB": 64 << 20, "64 MiB": 64 << 20, "1GiB": 1 << 30, "2047MiB": 2047 << 20, "2147483647": 1<<31 - 1,
	} {
		if got, err := text.parse(); got != want || err != nil {
			t.Errorf("%s is %d, %v", text, got, err)
		}
	}
	for _, text := range []Size{"", "0", "-1", "2GiB", "2048MiB", "2147483648", "1MB", "1.5MiB", "MiB", "9999999999999999999GiB", "1 KiB KiB"} {
		if got, err := text.parse(); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

// What is refused must be refused wherever the schema has it, so that nothing is accepted and ignored.
func TestNothingUnservedIsAccepted(t *testing.T) {
	for _, name := range Unserved() {
		path, value, isValue := strings.Cut(name, "=")
		text := "null"
		if isValue {
			text = fmt.Sprintf("%q", value)
		}
		parts := strings.Split(path, ".")
		for _, part := range slices.Backward(parts) {
			field, isList := strings.CutSuffix(part, "[]")
			if isList {
				text = "[" + text + "]"
			}
			if field == "*" {
				field = "triton"
			}
			text = fmt.Sprintf("{%s: %s}", field, text)
		}
		if got := strings.Join(wrongs(t, text), "\n"); !strings.Contains(got, "not served by this version") {
			t.Errorf("%s gives %q", text, got)
		}
	}
}

// The structs of the file must have a place for all of the whole example, served or not.
func TestTheSchemaHasEveryFieldOfTheWholeExample(t *testing.T) {
	table := maps.Clone(unserved)
	clear(unserved)
	defer maps.Copy(unserved, table)
	source, err := os.ReadFile("testdata/whole.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := newReader("whole.yaml", source)
	file := r.file(source)
	if len(r.found) > 0 {
		t.Fatal(r.found)
	}
	m := file.Models[0]
	if file.Redis.Address[1] != "redis-1:6379" || *m.Fallback.Score != 0.5 || m.Limits[1].Overrides["vip-7"] != "200/s" || m.Split[2].Weights["model_v1"] != 95 ||
		file.Defaults.Breaker.MinCalls != 20 || !file.Upstreams["triton"].Keepalive.Permitted || file.Defaults.Timeout.Dynamic.Factor != 1.5 {
		t.Errorf("read as %+v", file)
	}
}

func TestNearNamesAreSuggested(t *testing.T) {
	known := []string{"models", "listen", "max_message", "auth"}
	for name, want := range map[string]string{
		"modles": "models", "model": "models", "Listen": "listen", "max_mesage": "max_message", "ahtu": "auth", "zebra": "", "x": "", "": "",
	} {
		got := didYouMean(name, known)
		if want != "" {
			want = "; did you mean " + want + "?"
		}
		if got != want {
			t.Errorf("%q suggests %q", name, got)
		}
	}
}

// canRun reports whether a rule is one that the catalog can make use of.
func canRun(r SplitRule) bool {
	sum := 0.0
	for _, w := range r.Weights {
		if !(w.Share >= 0 && w.Share <= 100) || w.Target == "" {
			return false
		}
		sum += w.Share
	}
	if w := r.When; w != nil {
		if len(w.Values) == 0 || (w.Header == "") == (w.Metadata == "" && w.Who == "") {
			return false
		}
		if _, err := regexp.Compile(w.Values[0]); w.Op == WhenRegex && err != nil {
			return false
		}
	}
	answers := 0
	for _, has := range []bool{r.To != "", r.Script != "", len(r.Weights) > 0} {
		if has {
			answers++
		}
	}
	return answers == 1 && r.Name != "" && (len(r.Weights) == 0 || math.Abs(sum-100) < 1e-6)
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/mistakes/*.yaml")
	for _, path := range append(files, "testdata/whole.yaml", "../../docs/examples/gateway.yaml", "../../docs/examples/access-and-limits.yaml", "../../docs/examples/split.yaml") {
		source, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		if len(source) > 16<<10 {
			return // how long the library takes is not what is looked for
		}
		c, err := Parse("fuzz.yaml", source, nil)
		var mistakes Errors
		switch {
		case err == nil:
			if len(c.Upstreams) == 0 || c.Listen.MaxMessage <= 0 || c.Defaults.Max <= 0 {
				t.Fatalf("accepted, and cannot run: %+v", c)
			}
			limits := c.Limits
			for _, m := range c.Models {
				limits = append(limits, m.Limits...)
			}
			for _, l := range limits {
				if l.Name == "" || !(l.Rate.PerSecond > 0) || !(l.Rate.Burst >= 1) {
					t.Fatalf("accepted, and cannot run: %+v", l)
				}
			}
			masked := c.Masked()
			for _, caller := range c.Callers {
				if caller.Name == "" || len(caller.Keys) == 0 && caller.JWT == nil && caller.MTLS == nil {
					t.Fatalf("accepted, and cannot prove who it is: %+v", caller)
				}
				for _, key := range caller.Keys {
					if bytes.Contains(masked, []byte(key.String()[16:])) {
						t.Fatalf("a key is shown: %s", masked)
					}
				}
			}
			if c.Auth == AuthRequired && len(c.Callers) == 0 || c.Replicas < 1 {
				t.Fatalf("accepted, and cannot run: %+v", c)
			}
			for _, m := range c.Models {
				if m.Name == "" || m.Timeouts.Max <= 0 || (len(m.Targets) == 0) != (m.Stable == "") || len(m.Targets) == 0 && m.Upstream == "" {
					t.Fatalf("accepted, and cannot run: %+v", m)
				}
				for _, r := range m.Split {
					if !canRun(r) {
						t.Fatalf("accepted, and cannot run: %+v", r)
					}
				}
			}
		case !errors.As(err, &mistakes) || len(mistakes) == 0 || c != nil:
			t.Fatalf("got (%v, %v)", c, err)
		}
	})
}
