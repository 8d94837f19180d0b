package triton

import (
	"context"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
	"github.com/model-gateway/model-gateway/proto/triton"
)

func TestThePriorityOfACallWinsOverWhatItsMessageSaysWhereItIsPassedOn(t *testing.T) {
	var got *tritonpb.ModelInferRequest
	u := one(t, &tritontest.Server{Infer: func(_ context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
		got = r
		return tritontest.Response(r, 9), nil
	}})
	own := func(r *tritonpb.ModelInferRequest) {
		r.Parameters = map[string]*tritonpb.InferParameter{
			"priority": {ParameterChoice: &tritonpb.InferParameter_Uint64Param{Uint64Param: 1}},
			"other":    {ParameterChoice: &tritonpb.InferParameter_BoolParam{BoolParam: true}},
		}
	}
	for p, want := range map[inference.Priority]int64{inference.PriorityCritical: 1, inference.PriorityDefault: 2, inference.PrioritySheddable: 3} {
		for _, change := range []func(*tritonpb.ModelInferRequest){own, func(*tritonpb.ModelInferRequest) {}} {
			c := kserve(t, u, request("fraud", change))
			m := *c.Model
			m.PassPriority = true
			c.Model, c.Priority = &m, p
			if err := infer(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if level := got.GetParameters()["priority"].GetInt64Param(); level != want {
				t.Errorf("%s: the server is told %d, want %d", p, level, want)
			}
			c.Free()
		}
	}
	c := kserve(t, u, request("fraud", own))
	if err := infer(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got.GetParameters()["priority"].GetUint64Param() != 1 || !got.GetParameters()["other"].GetBoolParam() {
		t.Errorf("a model that is not told priorities got %v; what came should have left", got.GetParameters())
	}
}
