package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the goldens")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is otherwise now (go test -update writes it):\n%s", name, got)
	}
}

func aMoment() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC) }

// record makes an audit in dir that logs into a buffer.
func record(dir string) (*Audit, *bytes.Buffer) {
	var b bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	a := NewAudit(log, func() string { return dir })
	a.now = aMoment
	return a, &b
}

func lines(t *testing.T, path string) []Entry {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []Entry
	for line := range strings.Lines(string(b)) {
		var e Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

func TestReloadsByFileAndSignalAreKeptInFileAndLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	a, log := record(dir)
	hash := "old"
	if err := a.Reload(ByFile, "", func() string { return hash }, func() error { hash = "new"; return nil }); err != nil {
		t.Fatal(err)
	}
	no := errors.New("line 3: \"rate\" must be > 0\nline 4: no")
	if err := a.Reload(BySignal, "", func() string { return hash }, func() error { return no }); !errors.Is(err, no) {
		t.Fatalf("got %v", err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "reloads.log", b)
	golden(t, "reloads.slog", log.Bytes())
	if info, err := os.Stat(filepath.Join(dir, "audit.log")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestARecordThatCannotBeKeptIsAnErrorInTheLogAndNothingMore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a, log := record(file) // no folder
	a.Append(Entry{Who: "sre", What: "reload config", Result: Done})
	if s := log.String(); !strings.Contains(s, `"who":"sre"`) || !strings.Contains(s, `"level":"ERROR"`) {
		t.Errorf("logged: %s", s)
	}
	a, log = record("")
	a.Append(Entry{Who: "sre"})
	if s := log.String(); !strings.Contains(s, `"who":"sre"`) || strings.Contains(s, "ERROR") {
		t.Errorf("without a folder: %s", s)
	}
	var none *Audit
	if err := none.Reload(ByFile, "", func() string { return "" }, func() error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestALineAfterHalfAOneBeginsAnew(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	if err := os.WriteFile(path, []byte("{\"time\":\"20"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, _ := record(dir)
	a.Append(Entry{Who: "sre"})
	b, _ := os.ReadFile(path)
	if rest, ok := strings.CutPrefix(string(b), "{\"time\":\"20\n{"); !ok || !strings.HasSuffix(rest, "}\n") {
		t.Errorf("%s", b)
	}
}

func TestTheFileIsBoundedAndThreeOldOnesAreKept(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	a, log := record(dir)
	for i := range 6 {
		a.Append(Entry{Who: fmt.Sprint("w", i)})
		if err := os.Truncate(path, auditMost); err != nil { // as if full
			t.Fatal(err)
		}
	}
	a.Append(Entry{Who: "last"})
	if log.Len() == 0 || strings.Contains(log.String(), "ERROR") {
		t.Fatal(log)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "audit.log audit.log.1 audit.log.2 audit.log.3" {
		t.Errorf("files: %s", got)
	}
	for file, who := range map[string]string{"audit.log": "last", "audit.log.1": "w5", "audit.log.3": "w3"} {
		b, _ := os.ReadFile(filepath.Join(dir, file))
		if len(b) > auditMost || !bytes.Contains(b[:min(len(b), 200)], []byte(`"who":"`+who+`"`)) {
			t.Errorf("%s has %d bytes and not %s", file, len(b), who)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "audit.log.4")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a fourth is kept")
	}
}

func TestFieldsOfAnySizeMakeOneLineOfBoundedSize(t *testing.T) {
	dir := t.TempDir()
	a, _ := record(dir)
	long := strings.Repeat("é\n\x00", 100_000)
	a.Append(Entry{Who: long, What: long, Scope: long, OldHash: long, NewHash: long, Result: long, Address: long})
	a.Append(Entry{Who: "next"})
	all := lines(t, filepath.Join(dir, "audit.log"))
	if len(all) != 2 || all[1].Who != "next" || len(all[0].Who) > maxField+8 {
		t.Errorf("%d lines", len(all))
	}
}

func TestManyAtOnceKeepTheirLinesWhole(t *testing.T) {
	dir := t.TempDir()
	a := NewAudit(slog.New(slog.DiscardHandler), func() string { return dir })
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() { a.Append(Entry{Who: fmt.Sprint(i)}) })
	}
	all.Wait()
	if got := lines(t, filepath.Join(dir, "audit.log")); len(got) != 20 {
		t.Errorf("%d lines", len(got))
	}
}
