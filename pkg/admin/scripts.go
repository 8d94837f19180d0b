package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// Scripts are the scripts that split calls. What it answers is shown as JSON, also with an error: then nothing has
// changed, and the answer says why.
type Scripts interface {
	// List gives all scripts: state, version, why a newer one was refused.
	List() any
	// Show gives one, with its text and history; false where there is none.
	Show(name string) (any, bool)
	// Hash is that of the version of a script that runs; "" where none does.
	Hash(name string) string
	// Put makes a source the version that runs. With dry it is judged, and tried on recorded calls, and nothing
	// changes. scope says which replicas follow.
	Put(ctx context.Context, name string, source []byte, who string, dry bool) (answer any, scope string, err error)
	// Rollback goes back to a version: the beginning of its hash, how many versions back, or "file".
	Rollback(ctx context.Context, name, to, who string) (answer any, scope string, err error)
	// Export writes the recorded calls as lines of JSON, users replaced by salted hashes.
	Export(w io.Writer) error
}

const (
	maxScript  = 64 << 10 // bytes of a script
	maxCommand = 4 << 10  // bytes of what goes back
)

// scripts adds what concerns scripts to what operators may ask.
func (o *Options) scripts(mux *http.ServeMux) {
	mux.HandleFunc("GET /scripts", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, o.Scripts.List()) })
	mux.HandleFunc("GET /scripts/calls", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/jsonl")
		w.Header().Set("Content-Disposition", `attachment; filename="calls.jsonl"`)
		_ = o.Scripts.Export(w) // whoever asked is gone
	})
	mux.HandleFunc("GET /scripts/{name}", func(w http.ResponseWriter, r *http.Request) {
		script, ok := o.Scripts.Show(r.PathValue("name"))
		if !ok {
			noScript(w, r)
			return
		}
		answer(w, http.StatusOK, script)
	})
	mux.HandleFunc("PUT /scripts/{name}", o.putScript)
	mux.HandleFunc("POST /scripts/{name}/rollback", o.rollbackScript)
}

func noScript(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusNotFound, map[string]string{"error": fmt.Sprintf("there is no script %.128q; GET /scripts lists those there are", r.PathValue("name"))})
}

// putScript takes PUT /scripts/{name}, whose body is the source. With ?dry_run=1 nothing changes, and nothing is kept for
// the record.
func (o *Options) putScript(w http.ResponseWriter, r *http.Request) {
	dry, err := strconv.ParseBool(r.URL.Query().Get("dry_run"))
	if err != nil && r.URL.Query().Has("dry_run") {
		answer(w, http.StatusBadRequest, map[string]string{"error": "dry_run must be 1 or 0"})
		return
	}
	source, ok := body(w, r, maxScript)
	if !ok {
		return
	}
	name := r.PathValue("name")
	put := func(ctx context.Context) (any, string, error) { return o.Scripts.Put(ctx, name, source, who(r), dry) }
	if dry {
		said, _, err := put(r.Context())
		tell(w, said, err)
		return
	}
	o.changeScript(w, r, "put script", put)
}

// rollbackScript takes POST /scripts/{name}/rollback, whose body is {"to": "…"}.
func (o *Options) rollbackScript(w http.ResponseWriter, r *http.Request) {
	text, ok := body(w, r, maxCommand)
	if !ok {
		return
	}
	var command struct {
		To string `json:"to"`
	}
	if err := json.Unmarshal(text, &command); err != nil || command.To == "" {
		answer(w, http.StatusBadRequest, map[string]string{"error": `say what to go back to: {"to": "1"} for the version before, {"to": "a1b2c3d4"} for one by its hash, {"to": "file"} for what the file says`})
		return
	}
	if _, ok := o.Scripts.Show(r.PathValue("name")); !ok {
		noScript(w, r)
		return
	}
	o.changeScript(w, r, "roll back script", func(ctx context.Context) (any, string, error) {
		return o.Scripts.Rollback(ctx, r.PathValue("name"), command.To, who(r))
	})
}

// changeScript makes a change of a script and keeps it for the record, by the hash of the version that runs.
func (o *Options) changeScript(w http.ResponseWriter, r *http.Request, what string, do func(context.Context) (any, string, error)) {
	name := r.PathValue("name")
	e := Entry{Who: who(r), What: what + " " + name, OldHash: o.Scripts.Hash(name), Result: Done, Address: r.RemoteAddr}
	said, scope, err := do(r.Context())
	e.Scope = scope
	if err != nil {
		e.Result = "refused: " + err.Error()
	}
	e.NewHash = o.Scripts.Hash(name)
	o.Audit.Append(e)
	tell(w, said, err)
}

func tell(w http.ResponseWriter, said any, err error) {
	if err != nil {
		answer(w, http.StatusUnprocessableEntity, said)
		return
	}
	answer(w, http.StatusOK, said)
}

// body reads the body, of at most so many bytes; otherwise it has answered.
func body(w http.ResponseWriter, r *http.Request, most int64) ([]byte, bool) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err == nil {
		return text, true
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		answer(w, http.StatusRequestEntityTooLarge, map[string]string{"error": fmt.Sprintf("the body has more than %d bytes", most)})
		return nil, false
	}
	answer(w, http.StatusBadRequest, map[string]string{"error": "the body cannot be read"})
	return nil, false
}
