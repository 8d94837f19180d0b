package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// shelf has the script fraud, in the version that hash says.
type shelf struct{ hash string }

type shown struct {
	Script string `json:"script"`
	Hash   string `json:"hash"`
	Error  string `json:"error,omitempty"`
}

func (s *shelf) List() any { return []shown{{Script: "fraud", Hash: s.hash}} }
func (s *shelf) Show(name string) (any, bool) {
	return shown{Script: name, Hash: s.hash}, name == "fraud"
}
func (s *shelf) Hash(string) string { return s.hash }

func (s *shelf) Put(_ context.Context, name string, source []byte, who string, dry bool) (any, string, error) {
	if strings.Contains(string(source), "(") {
		err := errors.New(name + ".lua:1: no")
		return shown{Script: name, Error: err.Error()}, "all replicas", err
	}
	if !dry {
		s.hash = fmt.Sprintf("%s by %s", source, who)
	}
	return shown{Script: name, Hash: string(source)}, "all replicas", nil
}

func (s *shelf) Rollback(_ context.Context, name, to, who string) (any, string, error) {
	if to == "9" {
		err := errors.New("there are 2 versions")
		return shown{Script: name, Error: err.Error()}, ThisReplica, err
	}
	s.hash = to + " by " + who
	return shown{Script: name, Hash: to}, ThisReplica, nil
}

func (s *shelf) Export(w io.Writer) error {
	_, err := io.WriteString(w, "{\"users\":\"hashed\"}\n{}\n")
	return err
}

// send asks the port with a body; headers come in pairs.
func send(t *testing.T, o Options, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Host, r.RemoteAddr = "pod-3:8081", "192.0.2.9:4711"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	Server(o).Handler.ServeHTTP(w, r)
	return w
}

func TestScriptsAreShownAndChangedByOperatorsAndEachChangeIsOnRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	o := options(false)
	o.Scripts = &shelf{hash: "one"}
	o.Audit, _ = record(dir)
	var all strings.Builder
	for _, ask := range []struct{ method, path, body string }{
		{"GET", "/scripts", ""},
		{"GET", "/scripts/fraud", ""},
		{"GET", "/scripts/none", ""},
		{"GET", "/scripts/calls", ""},
		{"PUT", "/scripts/fraud?dry_run=1", "two"},
		{"PUT", "/scripts/fraud?dry_run=maybe", "two"},
		{"PUT", "/scripts/fraud", "two"},
		{"PUT", "/scripts/fraud", "("},
		{"PUT", "/scripts/fraud?dry_run=true", "("},
		{"PUT", "/scripts/fraud", strings.Repeat("x", maxScript+1)},
		{"POST", "/scripts/fraud/rollback", `{"to": "1"}`},
		{"POST", "/scripts/fraud/rollback", `{"to": "9"}`},
		{"POST", "/scripts/fraud/rollback", `{}`},
		{"POST", "/scripts/none/rollback", `{"to": "1"}`},
	} {
		w := send(t, o, ask.method, ask.path, ask.body, "x-api-key", "sre-key")
		fmt.Fprintf(&all, "%s %s\n%d %s\n%s\n", ask.method, ask.path, w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	golden(t, "scripts.txt", []byte(all.String()))
	var kept strings.Builder
	for _, e := range lines(t, filepath.Join(dir, "audit.log")) {
		fmt.Fprintf(&kept, "%s %q %q: %q to %q, %s, %s\n", e.Who, e.What, e.Scope, e.OldHash, e.NewHash, e.Result, e.Address)
	}
	golden(t, "scripts.audit", []byte(kept.String()))
}

func TestScriptsAndRecordedCallsAreForOperatorsAlone(t *testing.T) {
	for _, path := range []string{"/scripts", "/scripts/fraud", "/scripts/calls"} {
		o := options(false)
		o.Scripts = &shelf{}
		if w := send(t, o, http.MethodGet, path, "", "x-api-key", "bob-key"); w.Code != http.StatusForbidden {
			t.Errorf("%s: %d", path, w.Code)
		}
		if w := send(t, o, http.MethodGet, path, ""); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	o := options(false)
	s := &shelf{hash: "one"}
	o.Scripts = s
	for method, path := range map[string]string{http.MethodPut: "/scripts/fraud", http.MethodPost: "/scripts/fraud/rollback"} {
		if w := send(t, o, method, path, `{"to":"1"}`, "x-api-key", "sre-key", "Origin", "http://evil.example"); w.Code != http.StatusForbidden || s.hash != "one" {
			t.Errorf("%s from another origin: %d", path, w.Code)
		}
	}
	if w := send(t, options(false), http.MethodGet, "/scripts", "", "x-api-key", "sre-key"); w.Code != http.StatusNotFound {
		t.Errorf("without scripts: %d", w.Code)
	}
}
