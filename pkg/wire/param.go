package wire

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Parameters that the gateway reads or writes.
const (
	paramSequenceID    = "sequence_id"
	paramSequenceStart = "sequence_start"
	paramSequenceEnd   = "sequence_end"
	paramEmptyFinal    = "triton_enable_empty_final_response"
	paramFinal         = "triton_final_response"
	paramPriority      = "priority"
)

const (
	maxParameters = 1000 // entries in a message, those that replace one another included
	maxKey        = 64   // bytes of a key that could be one of ours
	maxSequenceID = 1024 // bytes
)

// Members of InferParameter.
const (
	boolParam   protowire.Number = 1
	int64Param  protowire.Number = 2
	stringParam protowire.Number = 3
	doubleParam protowire.Number = 4
	uint64Param protowire.Number = 5
)

var paramTypes = [...]protowire.Type{
	boolParam:   protowire.VarintType,
	int64Param:  protowire.VarintType,
	stringParam: protowire.BytesType,
	doubleParam: protowire.Fixed64Type,
	uint64Param: protowire.VarintType,
}

// param is one entry of a map<string, InferParameter>.
type param struct {
	key  []byte           // nil when it is longer than any that we know
	set  protowire.Number // which member is set; 0 for none
	v    uint64           // of a number
	text []byte           // of a string
	long bool             // the string is longer than maxSequenceID, and text is nil
}

// param reads the entry that f is.
func (c *cursor) param(f field) (param, error) {
	if err := f.want(protowire.BytesType, "parameters"); err != nil {
		return param{}, err
	}
	outer := c.enter(f.n)
	var p param
	for c.more() {
		m, err := c.field()
		if err != nil {
			return p, err
		}
		switch m.num {
		case 1:
			if err := m.want(protowire.BytesType, "a key of parameters"); err != nil {
				return p, err
			}
			if p.key = nil; m.n <= maxKey {
				p.key = c.view(m.n)
			} else {
				c.skip(m.n)
			}
		case 2:
			if err := c.paramValue(&p, m); err != nil {
				return p, err
			}
		default:
			c.pass(m)
		}
	}
	c.end = outer
	return p, nil
}

// paramValue reads the InferParameter that f is into p. Of several members the last is set, as oneof has it.
func (c *cursor) paramValue(p *param, f field) error {
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
		p.set, p.v, p.text, p.long = m.num, m.v, nil, m.n > maxSequenceID
		if m.num == stringParam && !p.long {
			p.text = c.view(m.n)
		} else {
			c.pass(m)
		}
	}
	c.end = outer
	return nil
}

// truth is the value of a parameter that must be a bool; any other type is not true.
func (p param) truth() bool { return p.set == boolParam && p.v != 0 }

// sequence appends the id to dst: the digits of a number, or the text. Number 0 means no sequence in this protocol.
func (p param) sequence(dst []byte) ([]byte, error) {
	switch {
	case p.long:
		return dst, fmt.Errorf("parameter %s is longer than %d bytes", paramSequenceID, maxSequenceID)
	case p.set == stringParam && !utf8.Valid(p.text):
		return dst, fmt.Errorf("parameter %s is not valid UTF-8", paramSequenceID)
	case p.set == stringParam:
		return append(dst, p.text...), nil
	case p.v == 0:
		return dst, nil
	case p.set == int64Param:
		return strconv.AppendInt(dst, int64(p.v), 10), nil
	case p.set == uint64Param:
		return strconv.AppendUint(dst, p.v, 10), nil
	}
	return dst, nil
}
