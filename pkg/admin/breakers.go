package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Breakers are the breakers of targets. What it answers is shown as JSON, also with an error: then nothing has changed, and
// the answer says why.
type Breakers interface {
	// List gives all breakers of targets that have been called lately.
	List() any
	// Has reports whether there is such a target, or something is forced for one of that name.
	Has(model, target string) bool
	// Forced is what is forced for a target: open, closed, or auto, which is nothing.
	Forced(model, target string) string
	// Force keeps the breaker of a target open or closed, or with auto lets it go. scope says which replicas follow.
	Force(ctx context.Context, model, target, state, who string) (answer any, scope string, err error)
}

// breakers adds what concerns breakers to what operators may ask.
func (o *Options) breakers(mux *http.ServeMux) {
	mux.HandleFunc("GET /breakers", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, o.Breakers.List()) })
	mux.HandleFunc("POST /breakers/{model}/{target}", o.forceBreaker)
}

// forceBreaker takes POST /breakers/{model}/{target}, whose body is {"state": "open"}. A slash in a model's name is
// written %2F.
func (o *Options) forceBreaker(w http.ResponseWriter, r *http.Request) {
	text, ok := body(w, r, maxCommand)
	if !ok {
		return
	}
	var command struct {
		State string `json:"state"`
	}
	if err := json.Unmarshal(text, &command); err != nil || command.State == "" {
		answer(w, http.StatusBadRequest, map[string]string{"error": `say which state: {"state": "open"} keeps all calls from the target, {"state": "closed"} lets all through, {"state": "auto"} leaves it to the breaker again`})
		return
	}
	model, target := r.PathValue("model"), r.PathValue("target")
	if !o.Breakers.Has(model, target) {
		answer(w, http.StatusNotFound, map[string]string{"error": fmt.Sprintf("there is no target %.128q of a model %.256q; GET /catalog lists those there are (a slash in a name is written %%2F here)", target, model)})
		return
	}
	e := Entry{
		Who: who(r), What: fmt.Sprintf("force breaker %s/%s %.16s", model, target, command.State), OldHash: o.Breakers.Forced(model, target),
		Result: Done, Address: r.RemoteAddr,
	}
	said, scope, err := o.Breakers.Force(r.Context(), model, target, command.State, who(r))
	e.Scope = scope
	if err != nil {
		e.Result = "refused: " + err.Error()
	}
	e.NewHash = o.Breakers.Forced(model, target)
	o.Audit.Append(e)
	tell(w, said, err)
}
