package wire

import (
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Limits on the metadata of a PredictionRequest.
const (
	maxMetadata      = 64   // entries, those that replace one another included
	maxMetadataEntry = 4096 // bytes of key and value together
)

// PeekPredict reads the head of a PredictionRequest and where its tensor is. It walks the message to its end, since
// the last value wins. Metadata entries sequence_id, sequence_start and sequence_end (true or false) become
// Head.Sequence. The error is a fault of kind InvalidArgument, or BadVersion for a negative model_version.
func PeekPredict(f inference.Frame) (inference.Head, error) {
	p := predictPeek{cursor: newCursor(f)}
	for p.more() {
		if err := p.next(); err != nil {
			return inference.Head{}, malformed("PredictionRequest", err)
		}
	}
	if p.version < 0 {
		return inference.Head{}, fault.New(fault.BadVersion,
			"model_version is %d; send a number above 0, or 0 to leave the choice to the gateway", p.version)
	}
	p.head.Model = string(p.model)
	if p.version > 0 {
		p.head.Version = strconv.Itoa(int(p.version))
	}
	if err := readSequence(&p.head); err != nil {
		return inference.Head{}, err
	}
	return p.head, nil
}

type predictPeek struct {
	cursor
	head    inference.Head
	model   []byte
	version int32
	entries int
}

// next reads one top-level field.
func (p *predictPeek) next() error {
	f, err := p.field()
	if err != nil {
		return err
	}
	switch f.num {
	case 1:
		p.model, err = p.text(f, "model_name", maxModel)
	case 2:
		p.version = int32(f.v) // an int32 is the low half of its varint
		err = f.want(protowire.VarintType, "model_version")
	case 3:
		p.head.TensorOff, p.head.TensorLen = p.pos, f.n
		err = f.want(protowire.BytesType, "input_tensor")
		p.pass(f)
	case 4:
		err = p.entry(f)
	default:
		p.pass(f)
	}
	return err
}

// entry reads one entry of metadata.
func (p *predictPeek) entry(f field) error {
	if err := f.want(protowire.BytesType, "metadata"); err != nil {
		return err
	}
	if p.entries++; p.entries > maxMetadata {
		return fmt.Errorf("metadata has more than %d entries", maxMetadata)
	}
	if f.n > maxMetadataEntry {
		return fmt.Errorf("an entry of metadata is %d bytes long, at most %d are allowed", f.n, maxMetadataEntry)
	}
	outer := p.enter(f.n)
	var key, value []byte
	for p.more() {
		m, err := p.field()
		if err != nil {
			return err
		}
		switch m.num {
		case 1:
			key, err = p.text(m, "a key of metadata", maxMetadataEntry)
		case 2:
			value, err = p.text(m, "a value of metadata", maxMetadataEntry)
		default:
			p.pass(m)
		}
		if err != nil {
			return err
		}
	}
	p.cursor.end = outer
	if p.head.Metadata == nil {
		p.head.Metadata = make(map[string]string)
	}
	var store [256]byte
	both := string(append(append(store[:0], key...), value...)) // one allocation for the two
	p.head.Metadata[both[:len(key)]] = both[len(key):]
	return nil
}

// readSequence takes the sequence from metadata, the only place a PredictionRequest has for it.
func readSequence(h *inference.Head) error {
	if len(h.Metadata) == 0 {
		return nil
	}
	id := h.Metadata[paramSequenceID]
	if len(id) > maxSequenceID {
		return fault.New(fault.InvalidArgument, "metadata[%q] is longer than %d bytes", paramSequenceID, maxSequenceID)
	}
	if id != "0" { // as a number it means no sequence, see param.sequence
		h.Sequence.ID = id
	}
	var err error
	if h.Sequence.Start, err = flag(h.Metadata, paramSequenceStart); err != nil {
		return err
	}
	h.Sequence.End, err = flag(h.Metadata, paramSequenceEnd)
	return err
}

func flag(metadata map[string]string, key string) (bool, error) {
	s, ok := metadata[key]
	if !ok {
		return false, nil
	}
	v, err := strconv.ParseBool(s)
	if err != nil {
		return false, fault.New(fault.InvalidArgument, "metadata[%q] is %.40q; send true or false", key, s)
	}
	return v, nil
}
