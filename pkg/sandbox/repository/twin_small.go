package repository

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
)

// Strings takes the elements of a BYTES tensor apart; a broken rest is left out. The elements share raw's memory.
func Strings(raw []byte) [][]byte {
	var out [][]byte
	for len(raw) >= 4 {
		n := uint64(binary.LittleEndian.Uint32(raw))
		if n > uint64(len(raw)-4) {
			break
		}
		out, raw = append(out, raw[4:4+n]), raw[4+n:]
	}
	return out
}

// String encodes one element of a BYTES tensor.
func String(s string) []byte {
	return append(binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(s)), uint32(len(s))), s...)
}

func missingInput(name string) *Error {
	return &Error{Code: codes.Internal, Msg: fmt.Sprintf("input %q is missing", name)}
}

// int32Of gives the first element of an INT32 input.
func int32Of(r *Request, name string, missing int32) int32 {
	if t := r.Input(name); t != nil && len(t.Data) >= 4 {
		return int32(binary.LittleEndian.Uint32(t.Data))
	}
	return missing
}

// seqSum is the sum of a sequence so far, as a 32-bit number that wraps.
type seqSum struct{}

func newSeqSum(*source, int64) (Backend, error) { return seqSum{}, nil }

// Execute implements Backend.
func (seqSum) Execute(batch []*Request) {
	for _, r := range batch {
		total := int32Of(r, "INPUT", 0)
		if s := r.Sequence.State; s != nil {
			if before, ok := (*s).(int32); ok && !r.Sequence.Start {
				total += before
			}
			*s = total
		}
		r.Send([]Tensor{{"SUM", "INT32", []int64{1, 1}, binary.LittleEndian.AppendUint32(nil, uint32(total))}}, nil, true)
	}
}

// echoFP32 gives a vector back.
type echoFP32 struct{}

func newEchoFP32(*source, int64) (Backend, error) { return echoFP32{}, nil }

// Execute implements Backend.
func (echoFP32) Execute(batch []*Request) {
	for _, r := range batch {
		in := r.Input("INPUT")
		if in == nil {
			r.Send(nil, missingInput("INPUT"), true)
			continue
		}
		r.Send([]Tensor{{"OUTPUT", in.Datatype, in.Shape, in.Data}}, nil, true)
	}
}

// tokens answers any number of times.
type tokens struct{}

func newTokens(*source, int64) (Backend, error) { return tokens{}, nil }

// Execute implements Backend. It returns at once; each request is answered on a goroutine of its own, which ends with it.
func (t tokens) Execute(batch []*Request) {
	for _, r := range batch {
		go t.answer(r)
	}
}

const (
	maxTokens = 100_000
	maxDelay  = 60_000
)

func (tokens) answer(r *Request) {
	defer r.Send(nil, nil, true)
	n, delay, failAt := int32Of(r, "N", 1), int32Of(r, "DELAY_MS", 0), int32Of(r, "FAIL_AT", -1)
	refuse := func(name string, limit, got int32) {
		r.Send(nil, &Error{Code: codes.InvalidArgument, Msg: fmt.Sprintf("%s must be 0 to %d, not %d", name, limit, got)}, false)
	}
	if n < 0 || n > maxTokens {
		refuse("N", maxTokens, n)
		return
	}
	if delay < 0 || delay > maxDelay {
		refuse("DELAY_MS", maxDelay, delay)
		return
	}
	for i := range n {
		if i > 0 && !wait(r, time.Duration(delay)*time.Millisecond) {
			return
		}
		if i == failAt {
			r.Send(nil, &Error{Code: codes.Internal, Msg: fmt.Sprintf("token %d failed", i)}, false)
			return
		}
		r.Send([]Tensor{{"TOKEN", "BYTES", []int64{1}, String("tok" + strconv.Itoa(int(i)))}}, nil, false)
	}
}

// wait reports whether the caller was still there after d.
func wait(r *Request, d time.Duration) bool {
	if d <= 0 {
		return r.Context.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context.Done():
		return false
	}
}
