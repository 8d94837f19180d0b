package wire

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Limits on an answer from an upstream.
const (
	maxErrorText = 16 << 10 // bytes of error_message that are kept
	maxOutputs   = 1024
)

// StreamAnswer is what PeekStreamAnswer reads of a ModelStreamInferResponse.
type StreamAnswer struct {
	ID, Model, Version string
	Error              string // error_message, its first 16 KiB
	Final              bool   // parameter triton_final_response: nothing more comes for this id
	Empty              bool   // neither outputs nor an error: a mark of the end, if Final
	Outputs            int    // how many outputs there are
	RawOutputs         int    // how many of them have raw bytes
}

// PeekStreamAnswer reads a ModelStreamInferResponse. Where infer_response occurs several times the occurrences merge.
// The error is a fault of kind UpstreamFailed.
func PeekStreamAnswer(f inference.Frame) (StreamAnswer, error) {
	p := streamPeek{cursor: newCursor(f)}
	for p.more() {
		if err := p.next(); err != nil {
			return StreamAnswer{}, malformedAnswer("ModelStreamInferResponse", err)
		}
	}
	var store [256]byte
	all := string(append(append(append(store[:0], p.id...), p.model...), p.version...))
	i, m := len(p.id), len(p.id)+len(p.model)
	p.answer.ID, p.answer.Model, p.answer.Version = all[:i], all[i:m], all[m:]
	p.answer.Empty = p.answer.Outputs == 0 && p.answer.Error == ""
	return p.answer, nil
}

type streamPeek struct {
	cursor
	answer             StreamAnswer
	id, model, version []byte
	params             int
}

// next reads one top-level field.
func (p *streamPeek) next() error {
	f, err := p.field()
	if err != nil {
		return err
	}
	switch f.num {
	case 1:
		if err := f.want(protowire.BytesType, "error_message"); err != nil {
			return err
		}
		p.answer.Error = p.errorText(f.n)
	case 2:
		if err := f.want(protowire.BytesType, "infer_response"); err != nil {
			return err
		}
		outer := p.enter(f.n)
		for p.more() {
			if err := p.response(); err != nil {
				return err
			}
		}
		p.cursor.end = outer
	default:
		p.pass(f)
	}
	return nil
}

// errorText reads n bytes of text and keeps the first maxErrorText of them. What is not UTF-8 becomes U+FFFD: the text
// is for classifying and logging, and a bad one must not hide that there was an error.
func (p *streamPeek) errorText(n int) string {
	kept := min(n, maxErrorText)
	text := string(p.view(kept))
	p.skip(n - kept)
	return strings.ToValidUTF8(text, "\uFFFD")
}

// response reads one field of the ModelInferResponse inside.
func (p *streamPeek) response() error {
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
		if entry, err = p.param(f); err == nil && string(entry.key) == paramFinal {
			p.answer.Final = entry.truth()
		}
	case 5:
		p.answer.Outputs++
		err = f.want(protowire.BytesType, "outputs")
		p.pass(f)
	case 6:
		p.answer.RawOutputs++
		err = f.want(protowire.BytesType, "raw_output_contents")
		p.pass(f)
	default:
		p.pass(f)
	}
	return err
}

// StreamError is a ModelStreamInferResponse that reports message in-band, for the request of that id.
func StreamError(id, model, message string) inference.Frame {
	message = strings.ToValidUTF8(message, "\uFFFD")
	b := make([]byte, 0, len(id)+len(model)+len(message)+24)
	b = appendText(b, 1, message)
	return inference.NewFrame(AppendStreamAnswer(b, id, model))
}

// UnwrapStreamAnswer turns a ModelStreamInferResponse into the ModelInferResponse inside, in place. Several of them
// become one that is their concatenation, which is how protobuf merges. Without any the frame becomes an empty message.
// The error is a fault of kind UpstreamFailed, and the frame is then as it was.
func UnwrapStreamAnswer(f *inference.Frame) error {
	c := newCursor(*f)
	var store [2]piece
	pieces := store[:0]
	for c.more() {
		fd, err := c.field()
		if err == nil && fd.num == 2 {
			if err = fd.want(protowire.BytesType, "infer_response"); err == nil && fd.n > 0 {
				pieces = append(pieces, piece{span: span{c.pos, fd.n}})
			}
		}
		if err == nil && len(pieces) > maxOutputs {
			err = fmt.Errorf("it has more than %d infer_response", maxOutputs)
		}
		if err != nil {
			return malformedAnswer("ModelStreamInferResponse", err)
		}
		c.pass(fd)
	}
	reshape(f, pieces)
	return nil
}
