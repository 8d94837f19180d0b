package health

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/proto/triton"
)

func input(name, datatype string, dims ...int64) *tritonpb.ModelMetadataResponse_TensorMetadata {
	return &tritonpb.ModelMetadataResponse_TensorMetadata{Name: name, Datatype: datatype, Shape: dims}
}

func inferring1(t *testing.T, s *server) *rig {
	s.ready = map[string]bool{"fraud/1": true, "cnn/1": true}
	s.index = []string{"fraud 1 READY", "cnn 1 READY"}
	r := start(t, map[string]*server{"a": s}, fraud1, key{"cnn", "1"})
	r.SetInfer(func(model string) bool { return model == "fraud" })
	after(11 * time.Second)
	return r
}

func TestAModelThatSaysItIsReadyAndFailsEveryInferenceIsOutUntilOneSucceeds(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{inputs: []*tritonpb.ModelMetadataResponse_TensorMetadata{input("IN", "FP32", -1, 16), input("TEXT", "BYTES", -1)}}
			var sent *tritonpb.ModelInferRequest
			s.infer = func(r *tritonpb.ModelInferRequest) error { sent = r; return nil }
			r := inferring1(t, s)
			r.want(t, "a", "fraud", "1", inference.Ready)
			if sent == nil || sent.GetModelName() != "fraud" || len(sent.GetRawInputContents()[0]) != 64 || len(sent.GetRawInputContents()[1]) != 4 || sent.GetInputs()[0].GetShape()[0] != 1 {
				t.Fatalf("sent %v", sent)
			}
			s.set(func() {
				s.hangs = hangs
				s.infer = func(*tritonpb.ModelInferRequest) error {
					return fault.New(fault.UpstreamFailed, "Stub process 'fraud_0_0' is not healthy.")
				}
			})
			after(2 * time.Second)
			r.want(t, "a", "fraud", "1", inference.Ready)
			after(45 * time.Second)
			r.want(t, "a", "fraud", "1", inference.NotReady)
			r.want(t, "a", "cnn", "1", inference.Ready)
			r.Refresh() // the index, which says that it is ready
			r.want(t, "a", "fraud", "1", inference.NotReady)
			s.set(func() { s.hangs, s.infer = false, nil })
			after(15 * time.Second)
			r.want(t, "a", "fraud", "1", inference.Ready)
		})
	}
}

func TestInferencesTakeThePlaceOfQuestionsNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{inputs: []*tritonpb.ModelMetadataResponse_TensorMetadata{input("IN", "FP32", -1, 16)}}
		r := inferring1(t, s)
		s.set(func() { s.infers = 0 })
		asked := s.count("fraud/1")
		after(100 * time.Second)
		synctest.Wait()
		if s.infers < 8 || s.infers > 11 {
			t.Errorf("%d inferences in 100 s", s.infers)
		}
		if all := s.count("fraud/1") - asked + s.infers; all > 51 {
			t.Errorf("%d questions in 100 s", all)
		}
		s.set(func() {
			s.infer = func(*tritonpb.ModelInferRequest) error {
				return fault.New(fault.InvalidArgument, "zeros are not for me")
			}
		})
		after(time.Minute)
		r.want(t, "a", "fraud", "1", inference.Ready)
		s.set(func() { s.infers = 0 })
		r.SetInfer(nil)
		after(time.Minute)
		if s.infers != 0 {
			t.Errorf("%d inferences that nobody wants", s.infers)
		}
	})
}

func TestModelsForWhichZerosAreNoQuestionAreSentNone(t *testing.T) {
	small := []*tritonpb.ModelMetadataResponse_TensorMetadata{input("IN", "FP32", -1, 16)}
	for name, s := range map[string]*server{
		"decoupled": {inputs: small, config: &tritonpb.ModelConfig{ModelTransactionPolicy: &tritonpb.ModelTransactionPolicy{Decoupled: true}}},
		"sequence":  {inputs: small, config: &tritonpb.ModelConfig{SchedulingChoice: &tritonpb.ModelConfig_SequenceBatching{SequenceBatching: &tritonpb.ModelSequenceBatching{}}}},
		"large":     {inputs: []*tritonpb.ModelMetadataResponse_TensorMetadata{input("IN", "FP32", 1<<40, 1<<40)}},
		"unknown":   {inputs: []*tritonpb.ModelMetadataResponse_TensorMetadata{input("IN", "COMPLEX", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := inferring1(t, s)
				after(time.Minute)
				if s.infers != 0 {
					t.Errorf("%d inferences", s.infers)
				}
				r.want(t, "a", "fraud", "1", inference.Ready)
			})
		})
	}
}
