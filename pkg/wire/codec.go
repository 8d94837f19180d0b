package wire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Codec is the gRPC codec of the gateway, for ForceServerCodecV2 and ForceCodecV2. An *inference.Frame passes through
// by reference; every other message is protobuf, so that health, reflection and control work on the same connection.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Give is a message to send that gives its Frame away: once it has been marshalled the Frame is empty, and its
// buffers are freed as soon as they are on the wire. A Frame sent as it is (*inference.Frame) stays with its owner.
type Give struct {
	Frame *inference.Frame
}

// Name is "proto", the content-subtype that every gRPC client knows.
func (Codec) Name() string { return "proto" }

// Marshal gives gRPC the buffers of a Frame, or the encoding of a proto.Message. gRPC frees what it gets.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *inference.Frame:
		m.Buf.Ref()
		return m.Buf[:len(m.Buf):len(m.Buf)], nil // no spare room: an Append by the owner must not be seen here
	case Give:
		data := m.Frame.Buf
		m.Frame.Buf = nil
		return data, nil
	}
	m := message(v)
	if m == nil {
		return nil, fmt.Errorf("wire: cannot send a %T: it is neither a frame nor a protobuf message", v)
	}
	return marshal(m)
}

// Unmarshal makes v a Frame of the buffers received, with references of its own and inference.Headroom to spare, or
// decodes them into a proto.Message. What the Frame held before is not freed.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*inference.Frame); ok {
		data.Ref() // gRPC frees its own references when we return
		if cap(data)-len(data) < inference.Headroom {
			data = append(make(mem.BufferSlice, 0, len(data)+inference.Headroom), data...)
		}
		f.Buf = data
		return nil
	}
	m := message(v)
	if m == nil {
		return fmt.Errorf("wire: cannot receive into a %T: it is neither a frame nor a protobuf message", v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	return proto.Unmarshal(whole.ReadOnlyData(), m)
}

// marshal encodes m into one buffer, from the pool where the pool takes buffers of that size back.
func marshal(m proto.Message) (mem.BufferSlice, error) {
	size := proto.Size(m)
	options := proto.MarshalOptions{UseCachedSize: true} // proto.Size has just cached it
	if mem.IsBelowBufferPoolingThreshold(size) {
		b, err := options.Marshal(m)
		if err != nil {
			return nil, err
		}
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	pool := mem.DefaultBufferPool()
	b := pool.Get(size)
	if _, err := options.MarshalAppend((*b)[:0], m); err != nil {
		pool.Put(b)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(b, pool)}, nil
}

func message(v any) proto.Message {
	switch m := v.(type) {
	case proto.Message:
		return m
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(m)
	}
	return nil
}
