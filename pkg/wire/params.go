package wire

import (
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Bounds on what PeekParams gives.
const (
	MaxPeekedParams = 64      // parameters
	maxPeekedKey    = 256     // bytes
	MaxPeekedText   = 4 << 10 // bytes of a text
)

// PeekParams reads the request parameters of a ModelInferRequest: bool, int64, float64 and string by name, where a
// number beyond int64 becomes a float64. As on the upstream the last entry of a name wins. What is beyond the bounds
// is left out: names after the first 64, long names and texts, what is not UTF-8, and entries without a value. The
// strings are copies. nil stands for none. The error is a fault of kind InvalidArgument.
func PeekParams(f inference.Frame) (map[string]any, error) {
	c := newCursor(f)
	var params map[string]any
	entries := 0
	for c.more() {
		m, err := c.field()
		if err != nil {
			return nil, malformed("ModelInferRequest", err)
		}
		if m.num != 4 || entries == maxParameters {
			c.pass(m)
			continue
		}
		entries++
		name, value, err := c.entry(m)
		if err != nil {
			return nil, malformed("ModelInferRequest", err)
		}
		if _, known := params[name]; name == "" || (!known && len(params) == MaxPeekedParams) {
			continue
		}
		if value == nil {
			delete(params, name)
			continue
		}
		if params == nil {
			params = make(map[string]any)
		}
		params[name] = value
	}
	return params, nil
}

// entry reads one entry of parameters, with texts longer than those that param keeps. The name is "" for one that is
// left out, the value nil.
func (c *cursor) entry(f field) (name string, value any, err error) {
	if err := f.want(protowire.BytesType, "parameters"); err != nil {
		return "", nil, err
	}
	outer := c.enter(f.n)
	for c.more() {
		m, err := c.field()
		if err != nil {
			return "", nil, err
		}
		switch m.num {
		case 1:
			if err := m.want(protowire.BytesType, "a key of parameters"); err != nil {
				return "", nil, err
			}
			name, _ = c.short(m, maxPeekedKey)
		case 2:
			if err := c.value(m, &value); err != nil {
				return "", nil, err
			}
		default:
			c.pass(m)
		}
	}
	c.end = outer
	return name, value, nil
}

// value reads the InferParameter that f is; of several members the last counts, and one without any leaves value alone.
func (c *cursor) value(f field, value *any) error {
	if err := f.want(protowire.BytesType, "a value of parameters"); err != nil {
		return err
	}
	outer := c.enter(f.n)
	for c.more() {
		m, err := c.field()
		if err != nil {
			return err
		}
		if int(m.num) >= len(paramTypes) {
			c.pass(m)
			continue
		}
		if err := m.want(paramTypes[m.num], "a value of parameters"); err != nil {
			return err
		}
		switch m.num {
		case boolParam:
			*value = m.v != 0
		case int64Param:
			*value = int64(m.v)
		case uint64Param:
			if *value = int64(m.v); m.v > math.MaxInt64 {
				*value = float64(m.v)
			}
		case doubleParam:
			*value = math.Float64frombits(m.v)
		case stringParam:
			*value = nil
			if text, ok := c.short(m, MaxPeekedText); ok {
				*value = text
			}
		}
	}
	c.end = outer
	return nil
}

// short copies the string that f is, unless it is longer than limit or no UTF-8.
func (c *cursor) short(f field, limit int) (string, bool) {
	if f.n > limit {
		c.skip(f.n)
		return "", false
	}
	b := c.view(f.n)
	if !utf8.Valid(b) {
		return "", false
	}
	return string(b), true
}
