package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// fuses has the target model_v1 of team/risk, whose breaker is forced as it says.
type fuses struct{ forced string }

type fuse struct {
	Target string `json:"target"`
	State  string `json:"state"`
	Who    string `json:"who,omitempty"`
	Error  string `json:"error,omitempty"`
}

func (f *fuses) List() any { return []fuse{{Target: "model_v1", State: f.forced}} }

func (f *fuses) Has(model, target string) bool { return model == "team/risk" && target == "model_v1" }
func (f *fuses) Forced(string, string) string  { return f.forced }
func (f *fuses) Force(_ context.Context, _, target, state, who string) (any, string, error) {
	if state != "open" && state != "auto" {
		err := errors.New("state must be open, closed or auto")
		return fuse{Target: target, Error: err.Error()}, ThisReplica, err
	}
	f.forced = state
	return fuse{Target: target, State: state, Who: who}, "all replicas", nil
}

func TestBreakersAreShownAndForcedByOperatorsAndEachChangeIsOnRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	o := options(false)
	o.Breakers = &fuses{forced: "auto"}
	o.Audit, _ = record(dir)
	var all strings.Builder
	for _, ask := range []struct{ method, path, body string }{
		{"GET", "/breakers", ""},
		{"POST", "/breakers/team%2Frisk/model_v1", `{"state": "open"}`},
		{"POST", "/breakers/team%2Frisk/model_v1", `{"state": "ajar"}`},
		{"POST", "/breakers/team%2Frisk/model_v1", `{}`},
		{"POST", "/breakers/team%2Frisk/model_v1", strings.Repeat("x", maxCommand+1)},
		{"POST", "/breakers/team%2Frisk/model_v2", `{"state": "open"}`},
		{"POST", "/breakers/team/risk/model_v1", `{"state": "open"}`},
		{"POST", "/breakers/team%2Frisk/model_v1", `{"state": "auto"}`},
	} {
		w := send(t, o, ask.method, ask.path, ask.body, "x-api-key", "sre-key")
		fmt.Fprintf(&all, "%s %s\n%d %s\n%s\n", ask.method, ask.path, w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	golden(t, "breakers.txt", []byte(all.String()))
	var kept strings.Builder
	for _, e := range lines(t, filepath.Join(dir, "audit.log")) {
		fmt.Fprintf(&kept, "%s %q %q: %q to %q, %s, %s\n", e.Who, e.What, e.Scope, e.OldHash, e.NewHash, e.Result, e.Address)
	}
	golden(t, "breakers.audit", []byte(kept.String()))
}

func TestBreakersAreForOperatorsAlone(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		path := map[string]string{http.MethodGet: "/breakers", http.MethodPost: "/breakers/team%2Frisk/model_v1"}[method]
		o := options(false)
		f := &fuses{forced: "auto"}
		o.Breakers = f
		if w := send(t, o, method, path, `{"state": "open"}`, "x-api-key", "bob-key"); w.Code != http.StatusForbidden {
			t.Errorf("%s: %d", method, w.Code)
		}
		if w := send(t, o, method, path, `{"state": "open"}`); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d", method, w.Code)
		}
		if w := send(t, o, method, path, `{"state": "open"}`, "x-api-key", "sre-key", "Origin", "http://elsewhere.example"); method == http.MethodPost && w.Code != http.StatusForbidden {
			t.Errorf("of another origin: %d", w.Code)
		}
		if f.forced != "auto" {
			t.Error("it was forced all the same")
		}
	}
	if w := send(t, options(false), http.MethodGet, "/breakers", "", "x-api-key", "sre-key"); w.Code != http.StatusNotFound {
		t.Errorf("without breakers: %d", w.Code)
	}
}
