package gateway

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// summed sends a step of a sequence that adds value, and gives the sum so far and who had it: target and endpoint.
func (r *rig) summed(ctx context.Context, id string, value uint32, start, end bool) (sum uint32, target string, err error) {
	flag := func(b bool) *tritonpb.InferParameter {
		return &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_BoolParam{BoolParam: b}}
	}
	var header metadata.MD
	a, err := r.kserve().ModelInfer(ctx, &tritonpb.ModelInferRequest{
		ModelName: "sum",
		Inputs:    []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "INPUT", Datatype: "INT32", Shape: []int64{1, 1}}},
		Parameters: map[string]*tritonpb.InferParameter{
			"sequence_id":    {ParameterChoice: &tritonpb.InferParameter_StringParam{StringParam: id}},
			"sequence_start": flag(start), "sequence_end": flag(end),
		},
		RawInputContents: [][]byte{binary.LittleEndian.AppendUint32(nil, value)},
	}, grpc.Header(&header))
	if err != nil {
		return 0, "", err
	}
	return binary.LittleEndian.Uint32(a.RawOutputContents[0]), strings.Join(header.Get("x-gateway-target"), ","), nil
}

// summing is a gateway in front of two versions of a model that sums, of which one is stable.
func summing(t *testing.T, redis, stable, one, two string) *rig {
	t.Helper()
	r := beginWith(t, fmt.Sprintf(`
version: 1
redis: {address: "%s", prefix: test}
upstreams:
  one: {kind: triton, endpoints: [%s]}
  two: {kind: triton, endpoints: [%s]}
models:
  - name: sum
    targets: {v1: {model: seqsum, version: 1, upstream: one}, v2: {model: seqsum, version: 1, upstream: two}}
    stable: %s
`, redis, one, two, stable), nil, func(cfg *config.Config) {
		cfg.Redis.Timeout = 30 * time.Second // a busy machine is not a Redis that is down
	})
	r.awaitReady(t)
	return r
}

// steps checks that the steps of a sequence that is sent by way of several gateways in turn meet one state.
func steps(t *testing.T, id, target string, gateways ...*rig) {
	t.Helper()
	want := uint32(0)
	for i, r := range gateways {
		want += uint32(i) + 1
		sum, at, err := r.summed(t.Context(), id, uint32(i)+1, i == 0, i == len(gateways)-1)
		if err != nil || sum != want || at != target {
			t.Errorf("step %d of sequence %s: %d, want %d, at %s, want %s: %v", i, id, sum, want, at, target, err)
			return
		}
	}
}

func TestTwoGatewaysKeepASequenceTogetherWhateverTheirRulesAndEndpoints(t *testing.T) { // O-08
	redis := redistest.Start(t)
	var at [4]string
	for i := range at {
		_, at[i] = model(t)
	}
	a := summing(t, redis.Addr, "v1", at[0]+", "+at[1], at[3])
	b := summing(t, redis.Addr, "v2", at[0]+", "+at[1]+", "+at[2], at[3]) // of a configuration that is newer
	for i := range 10 {
		steps(t, fmt.Sprint("s-", i), "v1", a, b, b, a, b)
	}
	for i := range 10 { // the same ids, which other replicas may still know from before
		steps(t, fmt.Sprint("s-", i), "v2", b, a, a, b, a)
	}
	for i := range 10 {
		steps(t, fmt.Sprint("s-", i), "v1", a, b, a)
	}
}

func TestASequenceThatOneGatewaySawLostIsLostToAll(t *testing.T) {
	redis := redistest.Start(t)
	first, one := model(t)
	_, two := model(t)
	a, b := summing(t, redis.Addr, "v1", one, two), summing(t, redis.Addr, "v1", one, two)
	steps(t, "whole", "v1", a, b)
	if _, _, err := a.summed(t.Context(), "s", 1, true, false); err != nil {
		t.Fatal(err)
	}
	down(t, first)
	lost := func(r *rig) {
		t.Helper()
		_, _, err := r.summed(t.Context(), "s", 1, false, false)
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "start the sequence anew") {
			t.Errorf("%v", err)
		}
	}
	eventually(t, "the loss is told", func() bool {
		_, _, err := a.summed(t.Context(), "s", 1, false, false)
		return err != nil && strings.Contains(err.Error(), "start the sequence anew")
	})
	lost(b)
	lost(a)
	if !strings.Contains(redis.Do("KEYS", "*"), "test:sequence:{") {
		t.Error("nothing is on record")
	}
}

func TestWithoutRedisEachGatewayKeepsItsSequencesAndTellsWhenItIsBack(t *testing.T) {
	redis := redistest.Start(t)
	_, one := model(t)
	_, two := model(t)
	a, b := summing(t, redis.Addr, "v1", one, two), summing(t, redis.Addr, "v2", one, two)
	if _, _, err := a.summed(t.Context(), "before", 1, true, false); err != nil {
		t.Fatal(err)
	}
	redis.Stop()
	eventually(t, "Redis is known to be gone", func() bool { return !a.gateway.protection.redis.Up() && !b.gateway.protection.redis.Up() })
	steps(t, "meanwhile", "v1", a, a, a)
	if sum, at, err := a.summed(t.Context(), "before", 2, false, false); err != nil || sum != 3 || at != "v1" {
		t.Errorf("the second step: %d at %s, %v", sum, at, err)
	}
	if _, _, err := a.summed(t.Context(), "during", 1, true, false); err != nil {
		t.Fatal(err)
	}
	redis.Restart()
	eventually(t, "Redis is back", func() bool { return a.gateway.protection.redis.Up() && b.gateway.protection.redis.Up() })
	for _, id := range []string{"before", "during"} {
		sum, at, err := a.summed(t.Context(), id, 3, false, false) // who knows it tells the other
		if err != nil || at != "v1" {
			t.Errorf("sequence %s goes on at %s: %v", id, at, err)
		}
		next, at, err := b.summed(t.Context(), id, 4, false, true)
		if err != nil || at != "v1" || next != sum+4 {
			t.Errorf("sequence %s by the other gateway: %d after %d at %s, %v", id, next, sum, at, err)
		}
	}
}
