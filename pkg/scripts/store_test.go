package scripts

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

func TestMain(m *testing.M) {
	casesWithin, replayWithin = time.Minute, time.Minute
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

const canary = `local hash = ngx.crc32_short(ngx.var.arg_user_id)
if hash % 100 < 10 then
    return "model_v2"
else
    return "model_v1"
end
`

func answering(target string) string { return fmt.Sprintf("return %q\n", target) }

// logged is what a store has said.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// fixture is a store over folders of its own.
type fixture struct {
	*Store
	t          *testing.T
	dir, state string
	opts       Options
	log        *logged
	metrics    *telemetry.Metrics
}

// fix makes one of files by name.
func fix(t *testing.T, files map[string]string, change ...func(*Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), state: t.TempDir(), log: &logged{}}
	for name, text := range files {
		f.write(name, text)
	}
	f.opts = Options{
		Dir: f.dir, StateDir: func() string { return f.state }, Log: slog.New(slog.NewTextHandler(f.log, nil)),
		Uses: func(script string) Use {
			return Use{Models: []string{script}, Targets: []string{"model_v1", "model_v2", "model_v3"}}
		},
	}
	for _, c := range change {
		c(&f.opts)
	}
	f.again()
	return f
}

// again makes the store anew, as a restart would.
func (f *fixture) again() {
	f.metrics = telemetry.New(telemetry.Build{})
	f.opts.Metrics = f.metrics
	f.Store = New(f.opts)
}

func (f *fixture) write(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// replace writes a file such that nobody who follows ever finds half of it.
func (f *fixture) replace(name, text string) {
	f.t.Helper()
	f.write("."+name+".swp", text)
	if err := os.Rename(filepath.Join(f.dir, "."+name+".swp"), filepath.Join(f.dir, name)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) remove(name string) {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.dir, name)); err != nil {
		f.t.Fatal(err)
	}
}

var targets = map[string]*inference.Target{"model_v1": {Name: "model_v1"}, "model_v2": {Name: "model_v2"}, "model_v3": {Name: "model_v3"}}

var fraud = &inference.Model{Name: "fraud", Targets: targets, Stable: targets["model_v1"], Named: func(name string) *inference.Target { return targets[name] }}

func call(user string) *inference.Call {
	return &inference.Call{Model: fraud, Start: time.Now(), Identity: inference.Identity{User: user}, Head: inference.Head{Model: "fraud"}}
}

// decides wants the answer of a script: a target, or "" and a reason.
func (f *fixture) decides(script, want string) {
	f.t.Helper()
	target, reason, opinion := f.Decide(f.t.Context(), "fraud", script, call("u1"))
	got := target
	if target == "" {
		got = reason
	}
	if !opinion {
		got = "no opinion"
	}
	if got != want {
		f.t.Errorf("%s decides %q, want %q\n%s", script, got, want, f.log)
	}
}

func (f *fixture) state1(script string) Info {
	f.t.Helper()
	i, ok := f.Show(script)
	if !ok {
		f.t.Fatalf("there is no script %s\n%s", script, f.log)
	}
	return i
}

// eventually waits until a script decides so, for at most a second and a busy machine's patience.
func (f *fixture) eventually(script, want string) {
	f.t.Helper()
	redistest.Eventually(f.t, func() error {
		target, reason, _ := f.Decide(context.Background(), "fraud", script, call("u1"))
		if target != want && (target != "" || reason != want) {
			return fmt.Errorf("%s decides %q (%s), want %q", script, target, reason, want)
		}
		return nil
	})
}

func TestAScriptDecides(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": canary, "silent.lua": "return nil", "nobody.lua": "return hash(call.metadata.account) and 'model_v1'"})
	if _, _, opinion := f.Decide(t.Context(), "fraud", "silent", call("u1")); opinion {
		t.Error("nil is an opinion")
	}
	two := 0
	for i := range 1000 {
		if target, _, ok := f.Decide(t.Context(), "fraud", "fraud", call(fmt.Sprint("u", i))); target == "model_v2" {
			two++
		} else if target != "model_v1" || !ok {
			t.Fatal(target)
		}
	}
	if two < 50 || two > 150 {
		t.Errorf("%d of 1000 go to model_v2", two)
	}
	f.decides("nobody", "no_key")
	f.decides("none", ReasonNone)
	if !f.Has("fraud") || f.Has("none") {
		t.Error("what there is is not known")
	}
}

func TestABrokenVersionIsRefusedAndTheLastGoodOneStays(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": answering("model_v2")})
	good := f.Hash("fraud")
	f.write("fraud.lua", "if user then\nreturn 'model_v1'\n")
	if err := f.Reload(); err == nil || !strings.Contains(err.Error(), "fraud.lua:") {
		t.Errorf("got %v", err)
	}
	f.decides("fraud", "model_v2")
	i := f.state1("fraud")
	if i.State != StateRefused || i.Source != FromLastGood || i.Hash != good || len(i.Problems) == 0 || !strings.Contains(i.Problems[0], "fraud.lua:") {
		t.Errorf("%+v", i)
	}
	f.write("fraud.lua", answering("model_v3"))
	if err := f.Reload(); err != nil {
		t.Error(err)
	}
	f.decides("fraud", "model_v3")
	if i := f.state1("fraud"); i.State != StateOK || i.Source != FromFile || len(i.Problems) != 0 {
		t.Errorf("%+v", i)
	}
}

func TestAllMistakesAreToldAtOnceWithFileAndLine(t *testing.T) {
	f := fix(t, map[string]string{
		"fraud.lua": "if call.user == 'a' then return 'model_v7' end\nreturn 'model_v9'\n",
		"fraud_cases.yaml": `cases:
  - name: a
    call: {user: a}
    want: {target: model_v1}
  - name: b
    call: {user: b}
    want: {target: model_v9}
  - {name: c, call: {user: c}, want: {outcome: no_key}}
`,
	})
	i := f.state1("fraud")
	all := strings.Join(i.Problems, "\n")
	for _, want := range []string{
		`fraud.lua:1: answers "model_v7", which is no target of model fraud; there are: model_v1, model_v2, model_v3`,
		`fraud.lua:2: answers "model_v9"`, `fraud_cases.yaml:2: "a": wanted model_v1, got model_v7`, `fraud_cases.yaml:8: "c": wanted no_key, got model_v9`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is missing in\n%s", want, all)
		}
	}
	if strings.Contains(all, `"b"`) {
		t.Error("a case that passes is a mistake")
	}
	f.decides("fraud", ReasonNone)
}

func TestCasesThatChangeAreHeldAgainstTheVersionThatRuns(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": answering("model_v2")})
	f.write("fraud_cases.yaml", "cases: [{call: {}, want: model_v1}]")
	if err := f.Reload(); err == nil || !strings.Contains(err.Error(), "fraud_cases.yaml:1") {
		t.Errorf("got %v", err)
	}
	f.decides("fraud", "model_v2")
	if i := f.state1("fraud"); i.State != StateRefused || i.Source != FromFile {
		t.Errorf("%+v", i)
	}
	f.write("fraud_cases.yaml", "cases: [{call: {}, want: model_v2}]")
	if err := f.Reload(); err != nil {
		t.Error(err)
	}
	if i := f.state1("fraud"); i.State != StateOK || !i.Cases {
		t.Errorf("%+v", i)
	}
}

func TestAStartWithABrokenScriptServesTheLastGoodOne(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": answering("model_v2"), "rank.lua": "return ("})
	f.write("fraud.lua", "return (")
	f.again()
	f.decides("fraud", "model_v2")
	f.decides("rank", ReasonNone)
	if i := f.state1("fraud"); i.Source != FromLastGood || i.State != StateRefused || len(i.History) != 1 {
		t.Errorf("%+v", i)
	}
	if i := f.state1("rank"); i.Hash != "" || i.State != StateRefused {
		t.Errorf("%+v", i)
	}
	// Without state_dir there is none.
	f.opts.StateDir = nil
	f.again()
	f.decides("fraud", ReasonNone)
	if !strings.Contains(f.log.String(), "no state_dir") {
		t.Error("nobody is warned")
	}
}

func TestAStateDirThatCannotBeWrittenIsAWarning(t *testing.T) {
	f := fix(t, nil)
	file := filepath.Join(f.state, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.state = file
	f.write("fraud.lua", answering("model_v2"))
	if err := f.Reload(); err != nil {
		t.Error(err)
	}
	f.decides("fraud", "model_v2")
	if !strings.Contains(f.log.String(), "level=WARN msg=\"the last good version of a script cannot be kept") {
		t.Error(f.log)
	}
}

func TestADamagedStateIsNotUsed(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": answering("model_v2")})
	path := filepath.Join(f.state, "scripts", "fraud.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, damage := range []string{"{", strings.ReplaceAll(string(b), "model_v2", "model_v3"), strings.ReplaceAll(string(b), `"name":"fraud"`, `"name":"x"`)} {
		if err := os.WriteFile(path, []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		f.write("fraud.lua", "return (")
		f.again()
		f.decides("fraud", ReasonNone)
	}
}

func TestAScriptThatNobodyUsesGoesWithItsFile(t *testing.T) {
	named := map[string]bool{"fraud": true}
	f := fix(t, map[string]string{"fraud.lua": answering("model_v2"), "rank.lua": answering("model_v3")}, func(o *Options) {
		o.Uses = func(script string) Use { return Use{Named: named[script]} }
		o.Names = func() []string { return []string{"fraud", "never"} }
	})
	f.remove("fraud.lua")
	f.remove("rank.lua")
	if err := f.Reload(); err == nil || !strings.Contains(err.Error(), "the configuration names it") {
		t.Errorf("got %v", err)
	}
	f.decides("fraud", "model_v2")
	if f.Has("rank") {
		t.Error("rank is still there")
	}
	if i := f.state1("fraud"); i.State != StateRefused || i.Source != FromLastGood {
		t.Errorf("%+v", i)
	}
	f.again() // and at the next start
	f.decides("fraud", "model_v2")
	delete(named, "fraud")
	_ = f.Reload()
	if f.Has("fraud") {
		t.Error("nobody names fraud any more")
	}
	f.write("rank.lua", answering("model_v1"))
	f.write("fraud.lua", answering("model_v1"))
	if err := f.Reload(); err != nil {
		t.Error(err)
	}
	f.decides("rank", "model_v1")
	f.decides("fraud", "model_v1")
}

// passes is the use of a script that a model has by its name, if one passes through.
func passes(o *Options) { o.Uses = func(string) Use { return Use{Open: true} } }

func TestAFileThatIsGoneMovesNobody(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": answering("model_v2"), "rank.lua": answering("model_v3"), "wrong.lua": "return ("}, passes)
	for _, name := range []string{"fraud.lua", "rank.lua", "wrong.lua"} {
		f.remove(name)
	}
	const told = `fraud.lua: is gone, and what ran stays; put it back. To end a canary let it say: return "model_v1". To take the script away let it say: -- no script`
	if err := f.Reload(); err == nil || !strings.Contains(err.Error(), told) {
		t.Errorf("got %v", err)
	}
	for range 2 {
		f.decides("fraud", "model_v2")
		f.decides("rank", "model_v3")
		if i := f.state1("fraud"); i.State != StateRefused || i.Source != FromLastGood || len(i.Problems) != 1 || i.Problems[0] != told {
			t.Errorf("%+v", i)
		}
		if f.Has("wrong") {
			t.Error("what never was good stays")
		}
		f.again() // state_dir has it
	}
	if !strings.Contains(f.log.String(), "level=ERROR msg=\"a script is refused\" script=fraud") {
		t.Error("nobody is told")
	}
	f.write("fraud.lua", answering("model_v2"))
	_ = f.Reload()
	if i := f.state1("fraud"); i.State != StateOK || i.Source != FromFile {
		t.Errorf("%+v", i)
	}
	// Without state_dir a file that is not there at the start is no script.
	f.opts.StateDir = nil
	f.again()
	if f.Has("rank") {
		t.Error("rank is known without a file")
	}
}

func TestAFileThatSaysSoTakesItsScriptAway(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": answering("model_v2")}, passes)
	for _, text := range []string{"", "\n", "-- nothing here\n", "--[[ no script ]]\n", "-- no script\nreturn 'model_v1'"} {
		f.write("fraud.lua", text)
		_ = f.Reload()
		if !f.Has("fraud") {
			t.Fatalf("%q takes it away", text)
		}
	}
	f.write("fraud.lua", answering("model_v2"))
	_ = f.Reload()
	var changes []Change
	f.opts.Changed = func(c Change) { changes = append(changes, c) }
	f.again()
	f.write("fraud.lua", "\n--  No script.\n-- The canary is over.\n")
	for range 2 {
		if err := f.Reload(); err != nil || f.Has("fraud") {
			t.Errorf("%v %v", err, f.List())
		}
		f.again()
	}
	if len(changes) != 2 || changes[1].NewHash != "" || changes[1].OldHash == "" || changes[1].Who != ByFile {
		t.Errorf("%+v", changes)
	}
	if !strings.Contains(f.log.String(), "else their highest version serves") {
		t.Error("nobody is told")
	}
	f.remove("fraud.lua") // now it may go too
	for range 2 {
		if err := f.Reload(); err != nil || f.Has("fraud") {
			t.Errorf("%v %v", err, f.List())
		}
		f.again()
	}
	f.pushes(answering("model_v3"))
	f.decides("fraud", "model_v3")
	if a, err := f.Put(t.Context(), "fraud", []byte("-- no script"), "sre", false); err == nil || !strings.Contains(a.Problems[0], "only a file can say") {
		t.Errorf("%+v", a)
	}
	f.write("fraud.lua", answering("model_v1"))
	_ = f.Reload()
	f.decides("fraud", "model_v1")
}

func TestAScriptThatARuleNamesIsNotTakenAwayByItsFile(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": answering("model_v2")}, func(o *Options) {
		o.Uses = func(string) Use { return Use{Models: []string{"fraud"}, Open: true, Named: true} }
	})
	f.write("fraud.lua", "-- no script")
	if err := f.Reload(); err == nil || !strings.Contains(err.Error(), "fraud.lua:1: says that there is no script, and the configuration names it") {
		t.Errorf("got %v", err)
	}
	f.decides("fraud", "model_v2")
}

func TestAScriptThatHadARuleGoesWithItsFileUnlessAModelHasItByItsName(t *testing.T) {
	use := Use{Models: []string{"m"}, Targets: []string{"model_v2"}, Named: true}
	f := fix(t, map[string]string{"fraud.lua": answering("model_v2"), "rank.lua": answering("model_v2")}, func(o *Options) {
		o.Uses = func(string) Use { return use }
	})
	use = Use{Open: true} // rules are gone, and models pass through
	if err := f.Reload(); err != nil {
		t.Error(err)
	}
	c := call("u1")
	c.Model = &inference.Model{Name: "fraud", Scripted: true}
	if target, _, _ := f.Decide(t.Context(), "fraud", "fraud", c); target != "model_v2" {
		t.Error(target)
	}
	f.remove("fraud.lua")
	f.remove("rank.lua")
	for range 2 {
		_ = f.Reload()
		f.decides("fraud", "model_v2")
		if f.Has("rank") {
			t.Error("nobody can want rank any more")
		}
		f.again()
	}
}

func TestAnOverrideOutlivesAFileThatComesAndGoes(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": answering("model_v1")}, passes)
	f.pushes(answering("model_v2"))
	f.remove("fraud.lua")
	for range 2 {
		_ = f.Reload()
		f.decides("fraud", "model_v2")
		if i := f.state1("fraud"); i.State != StateRefused || i.Override == nil || !i.Override.InForce || i.Source != FromOverride || len(i.Problems) != 1 {
			t.Errorf("%+v", i)
		}
		f.again()
	}
	f.write("fraud.lua", answering("model_v1"))
	if err := f.Reload(); err != nil {
		t.Error(err)
	}
	f.decides("fraud", "model_v2")
	if i := f.state1("fraud"); i.State != StateOK {
		t.Errorf("%+v", i)
	}
	f.remove("fraud.lua")
	_ = f.Reload()
	if _, err := f.Rollback(t.Context(), "fraud", ToFile, "sre"); err != nil {
		t.Error(err)
	}
	f.decides("fraud", "model_v2") // there is no file to go back to
	f.write("fraud.lua", answering("model_v3"))
	_ = f.Reload()
	f.decides("fraud", "model_v3")
}

func TestAPushedScriptWithoutAFileOutlivesARestart(t *testing.T) {
	f := fix(t, nil, passes)
	f.pushes(answering("model_v2"))
	if err := os.WriteFile(filepath.Join(f.state, "scripts", "..json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.again()
	f.decides("fraud", "model_v2")
	if i := f.state1("fraud"); i.State != StateOK || i.Source != FromOverride || i.Who != "sre" {
		t.Errorf("%+v", i)
	}
	if _, err := f.Rollback(t.Context(), "fraud", ToFile, "sre"); err != nil || f.Has("fraud") {
		t.Error(err)
	}
	f.again()
	if f.Has("fraud") {
		t.Error("what was taken back is there again")
	}
}

func TestAFolderThatIsGoneChangesNothing(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": answering("model_v2")}, passes)
	if err := os.Rename(f.dir, f.dir+".away"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Reload(); err == nil {
			t.Error("no error")
		}
	}
	f.decides("fraud", "model_v2")
	if i := f.state1("fraud"); i.State != StateRefused || len(i.Problems) != 1 || i.Problems[0] != "the folder of scripts cannot be read: it was there, and is gone; scripts stay as they are until it is back" {
		t.Errorf("%+v", i)
	}
	if n := strings.Count(f.log.String(), "the folder of scripts cannot be read"); n != 1 {
		t.Errorf("it is told %d times", n)
	}
	if err := os.Rename(f.dir+".away", f.dir); err != nil {
		t.Fatal(err)
	}
	if err := f.Reload(); err != nil {
		t.Error(err)
	}
	if i := f.state1("fraud"); i.State != StateOK || i.Source != FromFile {
		t.Errorf("%+v", i)
	}
}

func TestAFolderThatCannotBeReadChangesNothing(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": answering("model_v2")})
	if err := os.Rename(f.dir, f.dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.dir, nil, 0o600); err != nil { // no folder
		t.Fatal(err)
	}
	if err := f.Reload(); err == nil {
		t.Error("no error")
	}
	f.decides("fraud", "model_v2")
	if err := os.Remove(f.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(f.dir+".away", f.dir); err != nil {
		t.Fatal(err)
	}
	f.decides("fraud", "model_v2")
}

func TestFilesThatAreNoScriptsAreLeftAlone(t *testing.T) {
	f := fix(t, map[string]string{
		"fraud.lua": answering("model_v2"), ".hidden.lua": "return (", "a b.lua": "return (", "README.md": "x", "fraud.lua~": "x", "4913": "",
		"big.lua": "--" + strings.Repeat("x", MaxSource), "empty.lua": " \n",
	})
	if err := os.Mkdir(filepath.Join(f.dir, "folder.lua"), 0o700); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range f.List() {
		names = append(names, i.Name+" "+i.State)
	}
	if got := strings.Join(names, ", "); got != "big refused, empty refused, fraud ok" {
		t.Error(got)
	}
}

func TestWhatModelsDeclareIsAskedAgainWhenTheConfigurationChanges(t *testing.T) {
	use := Use{Models: []string{"fraud"}, Open: true}
	f := fix(t, map[string]string{"fraud.lua": answering("model_v2"), "old.lua": answering("v2")}, func(o *Options) {
		o.Uses = func(string) Use { return use }
	})
	f.decides("fraud", "model_v2")
	if i := f.state1("old"); i.State != StateRefused || !strings.Contains(i.Problems[0], "model_v<version>") {
		t.Errorf("%+v", i)
	}
	use = Use{Models: []string{"fraud"}, Targets: []string{"model_v1"}}
	if err := f.Reload(); err == nil || !strings.Contains(err.Error(), `answers "model_v2"`) {
		t.Errorf("got %v", err)
	}
	f.decides("fraud", "model_v2") // it stays
	use.Targets = append(use.Targets, "model_v2")
	if err := f.Reload(); err == nil || strings.Contains(err.Error(), "fraud.lua") {
		t.Errorf("got %v", err)
	}
}

func TestHistoryHasTenVersionsAndOneGoesBackToAny(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": "-- 0\nreturn 'model_v1'"})
	for i := range 11 {
		f.write("fraud.lua", fmt.Sprintf("-- %d\nreturn 'model_v%d'", i+1, i%3+1))
		if err := f.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	i := f.state1("fraud")
	if len(i.History) != MaxHistory || i.History[0].Hash != i.Hash || i.History[0].Who != ByFile || i.History[0].When.IsZero() || i.History[0].Source != "" {
		t.Errorf("%+v", i.History)
	}
	ctx := t.Context()
	f.decides("fraud", "model_v2")
	a, err := f.Rollback(ctx, "fraud", "1", "sre")
	if err != nil || a.Scope != ThisReplica || a.Hash != i.History[1].Hash || a.Before != i.Hash {
		t.Fatalf("%+v %v", a, err)
	}
	f.decides("fraud", "model_v1")
	now := f.state1("fraud")
	if now.Source != FromOverride || now.Who != "sre" || now.Override == nil || !now.Override.InForce || now.Override.Replaces != i.Hash {
		t.Errorf("%+v", now)
	}
	// Once more goes one further, and not to where one came from.
	if a, err := f.Rollback(ctx, "fraud", "1", "sre"); err != nil || a.Hash != i.History[2].Hash {
		t.Errorf("%+v %v", a, err)
	}
	if a, err := f.Rollback(ctx, "fraud", i.History[5].Hash[:8], "sre"); err != nil || a.Hash != i.History[5].Hash {
		t.Errorf("%+v %v", a, err)
	}
	for _, to := range []string{"", "abc", "99", "0", strings.Repeat("0", 64)} {
		if _, err := f.Rollback(ctx, "fraud", to, "sre"); err == nil {
			t.Errorf("went back to %q", to)
		}
	}
	// It outlives a restart, and ends when the file changes.
	f.again()
	if got := f.Hash("fraud"); got != i.History[5].Hash {
		t.Errorf("after a restart %s runs", got)
	}
	if a, err := f.Rollback(ctx, "fraud", ToFile, "sre"); err != nil || a.Hash != i.Hash {
		t.Errorf("%+v %v", a, err)
	}
	f.decides("fraud", "model_v2")
	if _, err := f.Rollback(ctx, "fraud", ToFile, "sre"); err == nil {
		t.Error("an override that is not there was taken back")
	}
}

// backs wants a step back to come to that target.
func (f *fixture) backs(want string) {
	f.t.Helper()
	if a, err := f.Rollback(f.t.Context(), "fraud", "1", "sre"); err != nil {
		f.t.Errorf("%+v %v", a, err)
	}
	f.decides("fraud", want)
}

func (f *fixture) pushes(text string) {
	f.t.Helper()
	if a, err := f.Put(f.t.Context(), "fraud", []byte(text), "sre", false); err != nil {
		f.t.Errorf("%+v %v", a, err)
	}
}

func TestOneStepBackIsTheVersionThatRanBeforeAlsoWhereATextHasRunTwice(t *testing.T) {
	old, safe, better := answering("model_v1"), answering("model_v2"), answering("model_v3")
	f := fix(t, map[string]string{"fraud.lua": "-- the file\n" + old})
	for _, text := range []string{old, safe, better, safe} {
		f.pushes(text)
	}
	f.backs("model_v3")
	f.again() // how far somebody has gone back outlives a restart
	f.backs("model_v2")
	f.backs("model_v1")
	f.backs("model_v1") // the file
	if _, err := f.Rollback(t.Context(), "fraud", "1", "sre"); err == nil || !strings.Contains(err.Error(), "there are 0 versions before") {
		t.Errorf("got %v", err)
	}
	f.pushes(better) // what is new starts anew
	f.backs("model_v1")
}

func TestWhoeverGoesBackByHashToWhatWasGoneBackToGoesOnFromThere(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": "-- the file\n" + answering("model_v1")})
	f.pushes(answering("model_v2"))
	safe := f.Hash("fraud")
	f.pushes(answering("model_v3"))
	f.backs("model_v2")
	f.pushes("-- another\n" + answering("model_v3"))
	if _, err := f.Rollback(t.Context(), "fraud", safe[:8], "sre"); err != nil {
		t.Fatal(err)
	}
	f.decides("fraud", "model_v2")
	f.backs("model_v1")
}

func TestATextThatIsPushedAgainOverTheFileIsGoneBackFrom(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": answering("model_v1")})
	f.pushes(answering("model_v2"))
	if _, err := f.Rollback(t.Context(), "fraud", ToFile, "sre"); err != nil {
		t.Fatal(err)
	}
	f.pushes(answering("model_v2"))
	f.backs("model_v1")
}

func TestWhoeverWentFurtherBackThanIsKeptIsToldThatThereIsNoMore(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": answering("model_v1")})
	for i := range MaxHistory + 5 {
		f.pushes(fmt.Sprintf("-- %d\nreturn 'model_v2'", i))
	}
	for n := 0; ; n++ {
		if _, err := f.Rollback(t.Context(), "fraud", "1", "sre"); err != nil {
			if n < MaxHistory/2-1 || !strings.Contains(err.Error(), "there are 0 versions before") {
				t.Errorf("after %d: %v", n, err)
			}
			return
		}
		if n > MaxHistory {
			t.Fatal("it goes in circles")
		}
	}
}

func TestAFileOfMoreThanIsReadIsToldSo(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": "--" + strings.Repeat("x", 3*MaxSource)})
	if i := f.state1("fraud"); len(i.Problems) != 1 || i.Problems[0] != "fraud.lua: has more than 65536 bytes, and so many are read: keep long lists in metadata or headers" {
		t.Errorf("%q", i.Problems)
	}
}

func TestAnOverrideEndsWhenTheFileChangesAndDoesNotComeBack(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": answering("model_v1")})
	if _, err := f.Put(t.Context(), "fraud", []byte(answering("model_v2")), "sre", false); err != nil {
		t.Fatal(err)
	}
	f.decides("fraud", "model_v2")
	f.write("fraud.lua", "return (") // broken: what ran stays
	_ = f.Reload()
	f.decides("fraud", "model_v2")
	if i := f.state1("fraud"); i.Override != nil || i.Source != FromLastGood {
		t.Errorf("%+v", i)
	}
	f.write("fraud.lua", answering("model_v1"))
	_ = f.Reload()
	f.decides("fraud", "model_v1")

	// It ends too when the file changed while nobody looked.
	if _, err := f.Put(t.Context(), "fraud", []byte(answering("model_v2")), "sre", false); err != nil {
		t.Fatal(err)
	}
	f.write("fraud.lua", answering("model_v3"))
	f.again()
	f.decides("fraud", "model_v3")
	if i := f.state1("fraud"); i.Override != nil {
		t.Errorf("%+v", i)
	}
}

func TestPutRefusesWhatDoesNotHoldAndTriesWithoutChanging(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": answering("model_v1"), "fraud_cases.yaml": "cases: [{call: {user: vip}, want: model_v1}]"})
	ctx := t.Context()
	a, err := f.Put(ctx, "fraud", []byte(answering("model_v2")), "sre", false)
	if err == nil || len(a.Problems) != 1 || !strings.Contains(a.Problems[0], "fraud_cases.yaml:1") {
		t.Errorf("%+v %v", a, err)
	}
	for i := range 20 {
		c := call(fmt.Sprint("u", i))
		c.Start = c.Start.Add(time.Duration(i) * recordEvery)
		f.Decide(ctx, "fraud", "fraud", c)
	}
	source := []byte("if call.user == 'u1' then return 'model_v2' end\nreturn 'model_v1'")
	a, err = f.Put(ctx, "fraud", source, "sre", true)
	if err != nil || !a.DryRun || a.Cases != 1 || a.Replay == nil || a.Replay.Changed != 1 || a.Replay.Calls != 20 {
		t.Errorf("%+v %+v %v", a, a.Replay, err)
	}
	f.decides("fraud", "model_v1")
	if _, err = f.Put(ctx, "fraud", source, "sre", false); err != nil {
		t.Error(err)
	}
	f.decides("fraud", "model_v2")
	// What fails on most of what was recorded is refused, though its cases pass.
	a, err = f.Put(ctx, "fraud", []byte("if call.user == 'vip' then return 'model_v1' end\nerror('no')"), "sre", false)
	if err == nil || !strings.Contains(strings.Join(a.Problems, "\n"), "failed on 20 of 20 calls that were recorded, such as: line 2: ") {
		t.Errorf("%+v %v", a, err)
	}
	f.decides("fraud", "model_v2")
	if _, err := f.Put(ctx, "../x", source, "sre", false); err == nil {
		t.Error("a path is a name")
	}
	if a, err := f.Put(ctx, "fresh", []byte(answering("model_v3")), "sre", false); err != nil {
		t.Errorf("%+v %v", a, err)
	}
	f.decides("fresh", "model_v3")
	if a, err := f.Put(ctx, "wrong", []byte("return ("), "sre", false); err == nil || f.Has("wrong") {
		t.Errorf("%+v", a)
	}
}

func TestWhoeverPushesWhatNoModelUsesIsToldSo(t *testing.T) {
	use := map[string]Use{"idle": {}, "passing": {Open: true}, "default": {Open: true}, "used": {Models: []string{"m"}, Open: true}}
	f := fix(t, nil, func(o *Options) { o.Uses = func(name string) Use { return use[name] } })
	for name, want := range map[string]string{
		"idle":    "no model uses it now: name it in a rule, split: [{script: idle.lua}]",
		"passing": "it is used by a model of that name, if one passes through",
		"default": "it is used by models that pass through and have no script of their name",
		"used":    "",
	} {
		for _, dry := range []bool{true, false} {
			if a, err := f.Put(t.Context(), name, []byte(answering("model_v1")), "sre", dry); err != nil || a.Note != want {
				t.Errorf("%s: %q %v", name, a.Note, err)
			}
		}
		if i := f.state1(name); i.ByName != (name == "passing" || name == "default") {
			t.Errorf("%+v", i)
		}
	}
}

func TestAThousandScriptsAreSoonLoadedAndTheirMemoryIsKnown(t *testing.T) {
	files := make(map[string]string)
	for i := range 1000 {
		files[fmt.Sprintf("model-%d.lua", i)] = fmt.Sprintf("-- %d\n%s", i, canary)
	}
	var f *fixture
	calm.Moment(t, func() error {
		begun := time.Now()
		f = fix(t, files, func(o *Options) { o.StateDir = nil })
		if took := time.Since(begun); took > 20*time.Second {
			return fmt.Errorf("it took %v", took)
		}
		return nil
	})
	var sum int64
	for _, i := range f.List() {
		if i.State != StateOK || i.Memory <= 0 {
			t.Fatalf("%+v", i)
		}
		sum += i.Memory
	}
	t.Logf("1000 scripts: %d bytes each", sum/1000)
	if sum > 100<<20 {
		t.Errorf("it took %d bytes", sum)
	}
	begun := time.Now()
	if err := f.Reload(); err != nil {
		t.Error(err)
	}
	t.Logf("looking again: %v", time.Since(begun))
}
