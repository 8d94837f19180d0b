package admin

import (
	"context"
	"net/http"

	"github.com/model-gateway/model-gateway/pkg/explain"
	"github.com/model-gateway/model-gateway/pkg/fault"
)

// Explainer says what would happen to a call.
type Explainer interface {
	Explain(ctx context.Context, q explain.Question) (*explain.Report, error)
}

// explainHandler answers GET /explain?model=&version=&user=&caller=&role=&address=.
func explainHandler(e Explainer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked := r.URL.Query()
		report, err := e.Explain(r.Context(), explain.Question{
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
