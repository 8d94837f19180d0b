package explain

import (
	"context"
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// roomy is a pool that takes so many calls at each endpoint.
type roomy struct{ limit, endpoints, full int }

func (r roomy) Room() (limit, endpoints, full int) { return r.limit, r.endpoints, r.full }
func (r roomy) Ready() bool                        { return true }
func (r roomy) Pick(*inference.Call, []inference.Endpoint) (inference.Endpoint, error) {
	if r.limit > 0 && r.full == r.endpoints {
		return nil, fault.New(fault.Overloaded, "they are full")
	}
	return nil, nil
}

func TestTheRoomOfEndpointsIsShownWhereItIsBounded(t *testing.T) {
	for want, pool := range map[string]roomy{
		"": {0, 2, 0},
		"each of its 2 endpoints takes 200 calls at once, and has room\n":          {200, 2, 0},
		"each of its 2 endpoints takes 200 calls at once, and 1 of them is full\n": {200, 2, 1},
		"each of its 2 endpoints takes 200 calls at once, and is full\n":           {200, 2, 2},
		"its endpoint takes 1 call at once, and is full\n":                         {1, 1, 1},
	} {
		g := newGateway(false)
		target := &inference.Target{Name: "model_v1", Model: "fraud", Version: "1", Upstream: "triton", Asked: "fraud", Pool: pool}
		g.Split = func(_ context.Context, c *inference.Call) ([]inference.Considered, error) {
			c.Target = target
			return nil, nil
		}
		r, err := g.Explain(t.Context(), Question{Model: "fraud"})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), want) || want == "" && strings.Contains(text.String(), "at once") {
			t.Errorf("%v: %q is not in\n%s", err, want, text.String())
		}
		if full := pool.limit > 0 && pool.full == pool.endpoints; full != (r.Refusal != nil) || full && (r.Refusal.Reason != "OVERLOADED" || r.Refusal.Stage != "forward") {
			t.Errorf("%+v: refused %+v", pool, r.Refusal)
		}
	}
}
