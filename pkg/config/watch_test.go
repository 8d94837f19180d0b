package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/wholefile"
)

// watched is a file under watch, and what came of it.
type watched struct {
	*Watcher
	path    string
	applied chan *Config
	logged  chan string
}

// lines hands each line of a log on.
type lines struct{ to chan string }

func (l lines) Write(p []byte) (int, error) {
	l.to <- string(p)
	return len(p), nil
}

func model(name string) string { return oneUpstream + "models: [{name: " + name + "}]\n" }

// watch follows path until the test ends. refuse, where set, is what applying says.
func watch(t *testing.T, path string, refuse error) *watched {
	t.Helper()
	return start(t, path, nil, refuse)
}

// follow watches a configuration file that is in force.
func follow(t *testing.T, path string) *watched {
	t.Helper()
	c, err := Load(path, nil)
	must(t, err)
	return start(t, path, c, nil)
}

func start(t *testing.T, path string, force *Config, refuse error) *watched {
	t.Helper()
	w := &watched{path: path, applied: make(chan *Config, 100), logged: make(chan string, 100)}
	w.Watcher = NewWatcher(path, nil, func(c *Config) error {
		w.applied <- c
		return refuse
	}, slog.New(slog.NewTextHandler(lines{w.logged}, nil)))
	if force != nil {
		w.Seen(force)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

// first is the first configuration that is applied.
func first(t *testing.T, applied <-chan *Config) *Config {
	t.Helper()
	select {
	case c := <-applied:
		return c
	case <-time.After(time.Minute):
		t.Fatal("nothing was applied")
		return nil
	}
}

// gets waits until a model of this name is applied.
func (w *watched) gets(t *testing.T, name string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case c := <-w.applied:
			if c.Models[0].Name == name {
				return
			}
		case <-deadline:
			t.Fatalf("%s was never applied", name)
		}
	}
}

// logs waits for a line of the log.
func (w *watched) logs(t *testing.T, part string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case line := <-w.logged:
			if strings.Contains(line, part) {
				return
			}
		case <-deadline:
			t.Fatalf("%s was never logged", part)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAChangedFileIsAppliedHoweverItIsWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gateway.yaml")
	write(t, path, model("a"))
	w := watch(t, path, nil)

	write(t, path, model("b")) // in place
	w.gets(t, "b")

	write(t, path+".new", model("c")) // an editor: a new file over the old
	must(t, os.Rename(path+".new", path))
	w.gets(t, "c")

	must(t, os.Remove(path)) // gone for a while
	w.logs(t, "cannot be read")
	write(t, path, model("d"))
	w.gets(t, "d")
}

func TestASwappedConfigMapIsApplied(t *testing.T) {
	dir := t.TempDir()
	publish := func(version, text string) {
		must(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		write(t, filepath.Join(dir, version, "gateway.yaml"), text)
		must(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	publish("..2026_1", model("a"))
	path := filepath.Join(dir, "gateway.yaml")
	must(t, os.Symlink(filepath.Join("..data", "gateway.yaml"), path))
	w := watch(t, path, nil)
	for i, name := range []string{"b", "c", "d"} {
		publish(fmt.Sprintf("..2026_%d", i+2), model(name))
		w.gets(t, name)
		must(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%d", i+1))))
	}
}

func TestALinkIntoAnotherFolderIsFollowed(t *testing.T) {
	real, path := filepath.Join(t.TempDir(), "real.yaml"), filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, real, model("a"))
	must(t, os.Symlink(real, path))
	w := watch(t, path, nil)
	write(t, real, model("b"))
	w.gets(t, "b")
}

func TestAFileWithMistakesChangesNothingUntilItIsMended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, path, model("a"))
	w := watch(t, path, nil)
	write(t, path, "models: [{nmae: a}]")
	w.logs(t, "did you mean name?")
	var mistakes Errors
	if !errors.As(w.Err(), &mistakes) {
		t.Errorf("Err is %v", w.Err())
	}
	write(t, path, model("b"))
	w.gets(t, "b")
	w.logs(t, "is in force")
	if w.Err() != nil {
		t.Errorf("Err is %v", w.Err())
	}
}

func TestAFileThatIsTouchedAndNotChangedIsNotApplied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, path, model("a"))
	w := watch(t, path, nil)
	must(t, wholefile.Replace(path, []byte(model("a"))))
	must(t, os.Chtimes(path, time.Now(), time.Now().Add(time.Hour)))
	must(t, w.read(false)) // as Run does once the file is left alone
	write(t, path, model("b"))
	c := first(t, w.applied)
	if c.Models[0].Name != "b" {
		t.Errorf("%s was applied", c.Models[0].Name)
	}
}

func TestAChangeBetweenLoadingAndWatchingIsNotMissed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, path, model("b"))
	applied := make(chan *Config, 1)
	w := NewWatcher(path, nil, func(c *Config) error { applied <- c; return nil }, slog.New(slog.DiscardHandler))
	w.Seen(good(t, model("a")))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		w.Run(ctx)
		close(done)
	}()
	if c := first(t, applied); c.Models[0].Name != "b" {
		t.Errorf("%s was applied", c.Models[0].Name)
	}
	cancel()
	<-done
}

func TestReloadAppliesEvenWhatHasNotChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, path, model("a"))
	refuse := errors.New("listen.data needs a restart")
	var calls atomic.Int32
	w := NewWatcher(path, nil, func(*Config) error {
		if calls.Add(1) == 1 {
			return nil
		}
		return refuse
	}, slog.New(slog.DiscardHandler))
	if err := w.Reload(); err != nil || calls.Load() != 1 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
	if err := w.Reload(); !errors.Is(err, refuse) || !errors.Is(w.Err(), refuse) {
		t.Errorf("a refusal gives %v", err)
	}
	write(t, path, "version: 2")
	var mistakes Errors
	if err := w.Reload(); !errors.As(err, &mistakes) || calls.Load() != 2 {
		t.Errorf("a bad file gives %v after %d calls", err, calls.Load())
	}
}

func TestTheLastGoodConfigurationServesABadStart(t *testing.T) {
	dir := t.TempDir()
	path, state := filepath.Join(dir, "gateway.yaml"), filepath.Join(dir, "state", "deeper")
	write(t, path, model("a")+"state_dir: "+state+"\n")
	c, err := Load(path, nil)
	must(t, err)
	must(t, KeepLastGood(c))
	must(t, KeepLastGood(c)) // over itself
	if left, _ := os.ReadDir(state); len(left) != 1 {
		t.Errorf("state_dir has %v", left)
	}
	info, err := os.Stat(filepath.Join(state, lastGoodName))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v", info.Mode())
	}
	for name, bad := range map[string]string{
		"mistake": "versoin: 1\nstate_dir: " + state + "\n", "no YAML": "models: {\nstate_dir: " + state + "   # here\nx: [", "quoted": "}\nstate_dir: '" + state + "'\n",
	} {
		write(t, path, bad)
		last, err := LoadLastGood(path, nil)
		if err != nil || !slices.Equal(last.Source, c.Source) || last.Models[0].Name != "a" {
			t.Errorf("%s: %+v, %v", name, last, err)
		}
	}
	must(t, os.Remove(path))
	if _, err := LoadLastGood(path, nil); !errors.Is(err, ErrNoLastGood) {
		t.Errorf("with no file, and no word of a folder: %v", err)
	}
	if last, err := LoadLastGood(path, env("GATEWAY_STATE_DIR="+state)); err != nil || last.Models[0].Name != "a" {
		t.Errorf("with the environment's word: %v", err)
	}
	write(t, filepath.Join(state, lastGoodName), "version: 99")
	var mistakes Errors
	if _, err := LoadLastGood(path, env("GATEWAY_STATE_DIR="+state)); !errors.As(err, &mistakes) {
		t.Errorf("a kept file of another version: %v", err)
	}
	if _, err := LoadLastGood(path, env("GATEWAY_STATE_DIR="+dir)); !errors.Is(err, ErrNoLastGood) {
		t.Errorf("a folder where nothing is kept: %v", err)
	}
}

func TestNothingIsKeptWithoutAPlaceForIt(t *testing.T) {
	if err := KeepLastGood(good(t, oneUpstream)); !errors.Is(err, ErrNoLastGood) {
		t.Errorf("without state_dir: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	if err := KeepLastGood(good(t, oneUpstream+"state_dir: "+filepath.Join(file, "below"))); err == nil || errors.Is(err, ErrNoLastGood) {
		t.Errorf("a folder that cannot be: %v", err)
	}
}

// getsKeys waits until the first caller has these keys, and gives the configuration.
func (w *watched) getsKeys(t *testing.T, keys ...string) *Config {
	t.Helper()
	var want []KeyHash
	for _, k := range keys {
		want = append(want, HashKey(k))
	}
	deadline := time.After(time.Minute)
	for {
		select {
		case c := <-w.applied:
			if slices.Equal(c.Callers[0].Keys, want) {
				return c
			}
		case <-deadline:
			t.Fatalf("the keys %q were never applied", keys)
		}
	}
}

// keyed is a configuration whose one caller has its keys in a file, and the file.
func keyed(t *testing.T, keys ...string) (path, file string) {
	t.Helper()
	dir := t.TempDir()
	path, file = filepath.Join(dir, "gateway.yaml"), filepath.Join(t.TempDir(), "web.keys")
	write(t, path, oneUpstream+"callers: [{name: web, keys_file: "+file+"}]\n")
	writeKeys(t, file, keys...)
	return path, file
}

func writeKeys(t *testing.T, file string, keys ...string) {
	t.Helper()
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(hash(k) + "\n")
	}
	must(t, wholefile.Replace(file, []byte(b.String())))
}

func TestAFileOfKeysIsReadAgainWhenItChanges(t *testing.T) {
	path, file := keyed(t, "a")
	first, err := Load(path, nil)
	must(t, err)
	w := follow(t, path)
	writeKeys(t, file, "a", "b")
	next := w.getsKeys(t, "a", "b")
	if next.Hash != first.Hash || first.Same(next) || !first.Same(first) {
		t.Errorf("hashes %s and %s, the same: %v", first.Hash, next.Hash, first.Same(next))
	}
	writeKeys(t, file, "b")
	w.getsKeys(t, "b")
}

func TestPasswordsAndHeadersAreReadAgainToo(t *testing.T) {
	dir := t.TempDir()
	path, password, token := filepath.Join(dir, "gateway.yaml"), filepath.Join(dir, "password"), filepath.Join(dir, "token")
	write(t, password, "one")
	write(t, token, "uno")
	write(t, path, "upstreams: {t: {endpoints: a:1, headers: {x-token: {from_file: token}}}}\nredis: {address: a:1, password_file: password}\n")
	w := follow(t, path)
	must(t, wholefile.Replace(password, []byte("two")))
	must(t, wholefile.Replace(token, []byte("due")))
	deadline := time.After(time.Minute)
	for {
		select {
		case c := <-w.applied:
			if c.Redis.Password == "two" && c.Upstreams[0].Headers["x-token"] == "due" {
				return
			}
		case <-deadline:
			t.Fatal("the new secrets were never applied")
		}
	}
}

func TestAFileOfKeysThatIsGoneKeepsTheKeysItHad(t *testing.T) {
	path, file := keyed(t, "a")
	w := follow(t, path)
	must(t, os.Remove(file))
	w.logs(t, "what it held before stays in force")
	c := w.getsKeys(t, "a")
	if len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "callers[0].keys_file") {
		t.Errorf("notes are %q", c.Notes)
	}
	// The rest of the configuration goes on changing meanwhile.
	write(t, path, oneUpstream+"callers: [{name: web, keys_file: "+file+", keys: ["+hash("more")+"]}]\n")
	w.getsKeys(t, "more", "a")
	writeKeys(t, file, "b")
	if c := w.getsKeys(t, "more", "b"); len(c.Notes) != 0 {
		t.Errorf("notes are %q", c.Notes)
	}
	if _, err := Load(path, nil); err != nil {
		t.Error(err)
	}
	must(t, os.Remove(file))
	if _, err := Load(path, nil); err == nil || !strings.Contains(err.Error(), "mount the file there") {
		t.Errorf("a start without the file: %v", err)
	}
}

func TestAFileOfKeysThatIsGarbledChangesNothing(t *testing.T) {
	path, file := keyed(t, "a")
	w := follow(t, path)
	for _, text := range []string{"", "mgk_a-key-itself\n", hash("b") + "\ngarbage\n"} {
		must(t, wholefile.Replace(file, []byte(text)))
		w.logs(t, "cannot be served; the one before stays in force")
	}
	writeKeys(t, file, "c")
	w.getsKeys(t, "c")
	select {
	case c := <-w.applied:
		t.Errorf("%v was applied", c.Callers)
	default:
	}
}

func TestAFileOfKeysMayComeAfterTheConfigurationThatNamesIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	file := filepath.Join(t.TempDir(), "web.keys")
	write(t, path, oneUpstream)
	w := follow(t, path)
	write(t, path, oneUpstream+"callers: [{name: web, keys_file: "+file+"}]\n")
	w.logs(t, "mount the file there")
	writeKeys(t, file, "a")
	w.getsKeys(t, "a")
}

func TestTroubleWithCertificatesInUseDoesNotKeepAKeyAlive(t *testing.T) {
	cert, key := certificate(t, tomorrow())
	dir := t.TempDir()
	path, file := filepath.Join(dir, "gateway.yaml"), filepath.Join(dir, "web.keys")
	writeKeys(t, file, "stolen", "good")
	write(t, path, "upstreams: {t: {endpoints: a:1, tls: {ca: "+cert+"}}}\nlisten: {tls: {cert: "+cert+", key: "+key+"}}\ncallers: [{name: web, keys_file: web.keys}]\n")
	w := follow(t, path)
	must(t, os.Remove(cert))
	writeKeys(t, file, "good")
	c := w.getsKeys(t, "good")
	if len(c.Notes) != 2 || !strings.Contains(c.Notes[0]+c.Notes[1], "what was loaded before stays in use") {
		t.Errorf("notes are %q", c.Notes)
	}
}
