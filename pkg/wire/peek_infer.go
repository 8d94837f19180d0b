package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Limits on the strings of a request, in bytes.
const (
	maxModel   = 1024
	maxVersion = 256
	maxID      = 1024
)

// PeekInfer reads the head of a ModelInferRequest. It walks the message to its end, since the last value of a field
// and the last entry of a parameter win: reading only the first would let a second one slip past every rule.
// The error is a fault of kind InvalidArgument. The strings share one allocation.
func PeekInfer(f inference.Frame) (inference.Head, error) {
	p := inferPeek{cursor: newCursor(f)}
	for p.more() {
		if err := p.next(); err != nil {
			return inference.Head{}, malformed("ModelInferRequest", err)
		}
	}
	head, err := p.head()
	if err != nil {
		return inference.Head{}, malformed("ModelInferRequest", err)
	}
	return head, nil
}

// inferPeek holds views of what will be the head, until all of the message has been seen.
type inferPeek struct {
	cursor
	model, version, id []byte
	sequence           param
	start, end         bool
	emptyFinal         bool
	params             int
	inputs             int   // seen so far
	rows               int64 // of the first of them
}

// next reads one top-level field.
func (p *inferPeek) next() error {
	f, err := p.field()
	if err != nil {
		return err
	}
	switch f.num {
	case 1:
		p.model, err = p.text(f, "model_name", maxModel)
	case 2:
		p.version, err = p.text(f, "model_version", maxVersion)
	case 3:
		p.id, err = p.text(f, "id", maxID)
	case 4:
		if p.params++; p.params > maxParameters {
			return fmt.Errorf("it has more than %d parameters", maxParameters)
		}
		var entry param
		if entry, err = p.param(f); err == nil {
			p.take(entry)
		}
	case 5:
		if p.inputs++; p.inputs > 1 {
			p.pass(f)
			break
		}
		p.rows, err = p.firstDimension(f)
	default:
		p.pass(f)
	}
	return err
}

// firstDimension reads the first number of the shape of the input that f is; its contents are passed over.
func (c *cursor) firstDimension(f field) (dimension int64, err error) {
	if err := f.want(protowire.BytesType, "inputs"); err != nil {
		return 0, err
	}
	outer := c.enter(f.n)
	for known := false; c.more(); {
		m, err := c.field()
		if err != nil {
			return 0, err
		}
		switch {
		case m.num != 3 || known:
			c.pass(m)
		case m.typ == protowire.VarintType:
			dimension, known = int64(m.v), true
		case m.want(protowire.BytesType, "shape of an input") != nil:
			return 0, m.want(protowire.BytesType, "shape of an input")
		case m.n > 0: // packed: one number behind the other
			input := c.enter(m.n)
			v, err := c.varint()
			if err != nil {
				return 0, err
			}
			c.skip(c.end - c.pos)
			dimension, known, c.end = int64(v), true, input
		}
	}
	c.end = outer
	return dimension, nil
}

func (p *inferPeek) take(entry param) {
	switch string(entry.key) {
	case paramSequenceID:
		p.sequence = entry
	case paramSequenceStart:
		p.start = entry.truth()
	case paramSequenceEnd:
		p.end = entry.truth()
	case paramEmptyFinal:
		p.emptyFinal = entry.truth()
	}
}

// head puts all strings into one.
func (p *inferPeek) head() (inference.Head, error) {
	var store [256]byte
	b := append(append(append(store[:0], p.model...), p.version...), p.id...)
	b, err := p.sequence.sequence(b)
	if err != nil {
		return inference.Head{}, err
	}
	all := string(b)
	cut := func(n int) string {
		s := all[:n]
		all = all[n:]
		return s
	}
	return inference.Head{
		Model:      cut(len(p.model)),
		Version:    cut(len(p.version)),
		ID:         cut(len(p.id)),
		Sequence:   inference.Sequence{ID: cut(len(all)), Start: p.start, End: p.end},
		EmptyFinal: p.emptyFinal,
		Rows:       max(p.rows, 0),
	}, nil
}
