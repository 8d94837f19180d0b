package repository

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf16"

	"google.golang.org/grpc/codes"
)

// echo gives inputs back, tells what it saw, and fails or dawdles on request.
type echo struct {
	version   string
	cancelled atomic.Int64
}

func newEcho(_ *source, version int64) (Backend, error) {
	return &echo{version: strconv.FormatInt(version, 10)}, nil
}

var echoFails = map[string]codes.Code{
	"UNKNOWN": codes.Unknown, "INTERNAL": codes.Internal, "NOT_FOUND": codes.NotFound, "INVALID_ARG": codes.InvalidArgument,
	"UNAVAILABLE": codes.Unavailable, "UNSUPPORTED": codes.Unimplemented, "ALREADY_EXISTS": codes.AlreadyExists, "CANCELLED": codes.Canceled,
}

// Execute implements Backend.
func (e *echo) Execute(batch []*Request) {
	for _, r := range batch {
		out, err := e.one(r)
		r.Send(out, err, true)
	}
}

func (e *echo) one(r *Request) ([]Tensor, *Error) {
	delay, _ := r.Parameters["delay_ms"].(int64)
	if !wait(r, time.Duration(min(delay, maxDelay))*time.Millisecond) {
		e.cancelled.Add(1)
		return nil, &Error{Code: codes.Canceled, Msg: "the caller is gone"}
	}
	fail, _ := r.Parameters["fail"].(string)
	if fail == "raise" {
		return nil, &Error{Code: codes.Internal, Raised: true, Msg: "Failed to process the request(s) for model 'echo_0_0', message: ValueError: asked to fail\n\nAt:\n  /models/echo/1/model.py(33): one\n"}
	}
	if code, ok := echoFails[fail]; ok {
		return nil, &Error{Code: code, Msg: "asked to fail"}
	}
	out := []Tensor{{"SEEN", "BYTES", []int64{1}, String(e.seen(r))}}
	for _, name := range []string{"FP32", "FP16", "INT64", "UINT8", "BOOL", "BYTES"} {
		if in := r.Input(name); in != nil {
			out = append(out, Tensor{name + "_OUT", in.Datatype, in.Shape, in.Data})
		}
	}
	return out, nil
}

// seen writes JSON the way python's json.dumps(sort_keys=True) does.
func (e *echo) seen(r *Request) string {
	var b strings.Builder
	outputs := slices.Sorted(slices.Values(r.Outputs))
	fmt.Fprintf(&b, `{"cancelled": %d, "id": %s, "outputs": [`, e.cancelled.Load(), quote(r.ID))
	for i, o := range outputs {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quote(o))
	}
	b.WriteString(`], "parameters": {`)
	keys := make([]string, 0, len(r.Parameters))
	for k := range r.Parameters {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for i, k := range keys {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s: %s", quote(k), value(r.Parameters[k]))
	}
	fmt.Fprintf(&b, `}, "sequence": %s, "version": %s}`, value(r.Sequence.ID), quote(e.version))
	return b.String()
}

func value(v any) string {
	switch v := v.(type) {
	case nil:
		return "0"
	case string:
		return quote(v)
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(s, ".eIN") {
			s += ".0"
		}
		return s
	}
	return fmt.Sprint(v)
}

// quote writes a JSON string in ASCII.
func quote(s string) string {
	var plain, out strings.Builder
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return `""`
	}
	for _, c := range strings.TrimSuffix(plain.String(), "\n") {
		switch {
		case c < 0x7f:
			out.WriteRune(c)
		case c < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, c)
		default:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		}
	}
	return out.String()
}
