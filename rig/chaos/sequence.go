package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// sequences keeps n sequences of twenty steps going until the load ends: their sums are right only while all steps reach the
// same server. One that is lost is begun anew, under another id.
func (l *load) sequences(ctx context.Context, c *client, n int) {
	ctx, cancel := context.WithCancel(ctx)
	stop := l.stop
	l.stop = func() { cancel(); stop() }
	for k := range n {
		l.calls.Go(func() {
			for round := int64(1); ctx.Err() == nil; round++ {
				l.sequence(ctx, c, k, int64(k+1)*1_000_000+round)
			}
		})
	}
}

func (l *load) sequence(ctx context.Context, c *client, k int, id int64) {
	const steps = 20
	for step := 1; step <= steps && ctx.Err() == nil; step++ {
		due := time.Now()
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.deadline)
		o, why := c.step(call, k, id, step, step == 1, step == steps)
		cancel()
		l.add(record{at: due, took: time.Since(due), kind: "sequence", outcome: o, why: why})
		if o != ok {
			l.pause(ctx)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(messageEvery):
		}
	}
}

// step adds one to the sum of a sequence, which must then be sum.
func (c *client) step(ctx context.Context, k int, id int64, sum int, start, end bool) (outcome, string) {
	a, err := c.infers(k).ModelInfer(ctx, &tritonpb.ModelInferRequest{
		ModelName: "seqsum",
		Parameters: map[string]*tritonpb.InferParameter{
			"sequence_id":    {ParameterChoice: &tritonpb.InferParameter_Int64Param{Int64Param: id}},
			"sequence_start": {ParameterChoice: &tritonpb.InferParameter_BoolParam{BoolParam: start}},
			"sequence_end":   {ParameterChoice: &tritonpb.InferParameter_BoolParam{BoolParam: end}},
		},
		Inputs:           []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "INPUT", Datatype: "INT32", Shape: []int64{1, 1}}},
		RawInputContents: [][]byte{{1, 0, 0, 0}},
	})
	if err != nil {
		return verdictOf(err)
	}
	if len(a.RawOutputContents) != 1 || len(a.RawOutputContents[0]) != 4 {
		return failed, "wrong answer: no sum"
	}
	if got := binary.LittleEndian.Uint32(a.RawOutputContents[0]); int(got) != sum {
		return failed, fmt.Sprintf("wrong answer: the sum is %d after %d steps of one", got, sum)
	}
	return ok, ""
}

// lostSequence: a step of a sequence whose server has gone, which is told so.
func lostSequence(r record) bool {
	return r.kind == "sequence" && strings.HasPrefix(r.why, "Unavailable SEQUENCE_LOST")
}
