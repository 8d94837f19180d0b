package admin

import (
	"context"
	"net/http"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/explain"
	"github.com/model-gateway/model-gateway/pkg/fault"
)

// Explainer says what would happen to a call.
type Explainer interface {
	Explain(ctx context.Context, q explain.Question) (*explain.Report, error)
}

// explainHandler answers GET /explain?model=&version=&user=&caller=&role=&address=&header=NAME=VALUE&metadata=KEY=VALUE; the
// last two any number of times.
func explainHandler(e Explainer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked := r.URL.Query()
		report, err := e.Explain(r.Context(), explain.Question{
			Headers: headers(asked["header"]), Metadata: metadata(asked["metadata"]),
			Model: asked.Get("model"), Version: asked.Get("version"), User: asked.Get("user"),
			Caller: asked.Get("caller"), Role: asked.Get("role"), Address: asked.Get("address"),
		})
		if err != nil {
			f := fault.Of(err)
			answer(w, f.HTTP(), map[string]string{"error": f.Msg, "reason": f.Kind.Reason()})
			return
		}
		answer(w, http.StatusOK, report)
	}
}

// headers reads NAME=VALUE; a name may come several times.
func headers(sent []string) map[string][]string {
	var all map[string][]string
	for _, s := range sent {
		name, value, _ := strings.Cut(s, "=")
		if all == nil {
			all = make(map[string][]string)
		}
		all[name] = append(all[name], value)
	}
	return all
}

// metadata reads KEY=VALUE; the last one of a key counts.
func metadata(sent []string) map[string]string {
	var all map[string]string
	for _, s := range sent {
		key, value, _ := strings.Cut(s, "=")
		if all == nil {
			all = make(map[string]string)
		}
		all[key] = value
	}
	return all
}
