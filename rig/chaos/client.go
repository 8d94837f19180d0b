package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // clients that heed readiness
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
	tritonmodels "github.com/model-gateway/model-gateway/triton-models"
)

// sample is an input of fraud and the answer that is right for it.
type sample struct {
	input []byte
	score float32
}

// samples are single rows of the goldens of fraud, version 1.
func samples() ([]sample, error) {
	b, err := tritonmodels.FS.ReadFile("fraud/golden.json")
	if err != nil {
		return nil, err
	}
	type tensor struct {
		Shape []int     `json:"shape"`
		Data  []float32 `json:"data"`
	}
	var golden struct {
		Cases []struct {
			Version string            `json:"version"`
			Inputs  map[string]tensor `json:"inputs"`
			Outputs map[string]tensor `json:"outputs"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(b, &golden); err != nil {
		return nil, err
	}
	var list []sample
	for _, c := range golden.Cases {
		in, out := c.Inputs["INPUT"], c.Outputs["SCORE"]
		if c.Version == "1" && len(in.Data) == 16 && len(out.Data) == 1 {
			list = append(list, sample{floats(in.Data), out.Data[0]})
		}
	}
	if len(list) < 2 {
		return nil, fmt.Errorf("fraud/golden.json has %d single rows of version 1; at least 2 are needed to tell answers apart", len(list))
	}
	return list, nil
}

func floats(list []float32) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, list) // a buffer takes everything
	return b.Bytes()
}

func near(raw []byte, want float32) bool {
	if len(raw) != 4 {
		return false
	}
	got := math.Float32frombits(binary.LittleEndian.Uint32(raw))
	return math.Abs(float64(got-want)) < 1e-4
}

// verdictOf is the outcome of a call that ended with an error.
func verdictOf(err error) (outcome, string) {
	s := status.Convert(err)
	why := s.Code().String()
	for _, d := range s.Details() {
		if info, isInfo := d.(*errdetails.ErrorInfo); isInfo {
			why += " " + info.Reason
		}
	}
	why += ": " + clip(s.Message())
	if s.Code() == codes.ResourceExhausted {
		return refused, why
	}
	return failed, why
}

func clip(s string) string { return s[:min(len(s), 140)] }

// client calls a gateway, or several with the same answers.
type client struct {
	conns   []*grpc.ClientConn
	samples []sample
}

// connections is how many a client opens: a caller of many, not one.
const connections = 4

// dial makes a client of the gateways at addresses. With more than one, it goes to those that say they are ready.
func dial(addresses ...string) (*client, error) {
	list, err := samples()
	if err != nil {
		return nil, err
	}
	c := &client{samples: list}
	for range connections {
		r := manual.NewBuilderWithScheme("replicas")
		var all []resolver.Address
		for _, a := range addresses {
			all = append(all, resolver.Address{Addr: a})
		}
		r.InitialState(resolver.State{Addresses: all})
		conn, err := grpc.NewClient("replicas:///gateway", grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
			grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}`))
		if err != nil {
			return nil, err
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

func (c *client) close() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

func (c *client) predicts(i int) inferencepb.InferenceServiceClient {
	return inferencepb.NewInferenceServiceClient(c.conns[i%len(c.conns)])
}

func (c *client) infers(i int) tritonpb.GRPCInferenceServiceClient {
	return tritonpb.NewGRPCInferenceServiceClient(c.conns[i%len(c.conns)])
}

// predict asks for a score of model through Predict.
func (c *client) predict(ctx context.Context, i int, model string) (outcome, string) {
	s := c.samples[i%len(c.samples)]
	a, err := c.predicts(i).Predict(ctx, &inferencepb.PredictionRequest{ModelName: model, InputTensor: s.input})
	if err != nil {
		return verdictOf(err)
	}
	return judge(a, s)
}

// judge tells what a Predict's answer is.
func judge(a *inferencepb.PredictionResponse, s sample) (outcome, string) {
	switch {
	case a.Status == "DEGRADED" && near(a.OutputTensor, 0.5) && a.Confidence == 0.5:
		return degraded, "DEGRADED"
	case a.Status == "OK" && near(a.OutputTensor, s.score):
		return ok, ""
	case a.Status == "OK", a.Status == "DEGRADED":
		return failed, fmt.Sprintf("wrong answer: %s %x", a.Status, a.OutputTensor)
	}
	return failed, clip(a.Status)
}

// infer asks for a score of model through KServe v2.
func (c *client) infer(ctx context.Context, i int, model string) (outcome, string) {
	s := c.samples[i%len(c.samples)]
	a, err := c.infers(i).ModelInfer(ctx, scoreRequest(model, "", s))
	if err != nil {
		return verdictOf(err)
	}
	return judgeV2(a, s)
}

func scoreRequest(model, id string, s sample) *tritonpb.ModelInferRequest {
	return &tritonpb.ModelInferRequest{
		ModelName: model, Id: id,
		Inputs:           []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "INPUT", Datatype: "FP32", Shape: []int64{1, 16}}},
		RawInputContents: [][]byte{s.input},
	}
}

func judgeV2(a *tritonpb.ModelInferResponse, s sample) (outcome, string) {
	var raw []byte
	if len(a.RawOutputContents) > 0 {
		raw = a.RawOutputContents[0]
	} else if len(a.Outputs) > 0 {
		raw = floats(a.Outputs[0].GetContents().GetFp32Contents())
	}
	isDegraded := a.Parameters["gateway_degraded"].GetBoolParam()
	switch {
	case isDegraded && near(raw, 0.5):
		return degraded, "gateway_degraded"
	case !isDegraded && near(raw, s.score):
		return ok, ""
	}
	return failed, fmt.Sprintf("wrong answer: degraded %t, %x", isDegraded, raw)
}

// large asks echo_fp32 for a vector of n bytes back: an answer and a request that do not fit into one write.
func (c *client) large(ctx context.Context, i, n int) (outcome, string) {
	raw := bytes.Repeat([]byte{byte(i), 1, 2, 60}, n/4)
	a, err := c.infers(i).ModelInfer(ctx, &tritonpb.ModelInferRequest{
		ModelName:        "echo_fp32",
		Inputs:           []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "INPUT", Datatype: "FP32", Shape: []int64{int64(n / 4)}}},
		RawInputContents: [][]byte{raw},
	})
	if err != nil {
		return verdictOf(err)
	}
	if len(a.RawOutputContents) != 1 || !bytes.Equal(a.RawOutputContents[0], raw) {
		return failed, "wrong answer: not what was sent"
	}
	return ok, ""
}

// long asks echo for an answer after delay milliseconds.
func (c *client) long(ctx context.Context, i int, model string, ms int64) (outcome, string) {
	_, err := c.infers(i).ModelInfer(ctx, &tritonpb.ModelInferRequest{
		ModelName:        model,
		Parameters:       map[string]*tritonpb.InferParameter{"delay_ms": {ParameterChoice: &tritonpb.InferParameter_Int64Param{Int64Param: ms}}},
		Inputs:           []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "INT64", Datatype: "INT64", Shape: []int64{1}}},
		RawInputContents: [][]byte{make([]byte, 8)},
	})
	if err != nil {
		return verdictOf(err)
	}
	return ok, ""
}
