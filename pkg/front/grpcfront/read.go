package grpcfront

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/room"
)

// transportStream is the part of gRPC's own stream that reads. ServerStream.RecvMsg reads a message as a whole, and takes
// the memory for it before anybody could know how large it is; here its length is looked at first.
type transportStream interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
	WriteStatus(st *status.Status) error
}

// readTimeout is how long a large message may take to arrive once it has begun.
const readTimeout = time.Minute

// reader reads messages of one client stream.
type reader struct {
	front   *Front
	stream  grpc.ServerStream
	raw     transportStream
	prefix  [5]byte
	further bool        // the stream may have further messages
	late    atomic.Bool // a message took too long, and the stream has been ended for it
}

// init makes r the reader of ss. It is part of a larger value, so that it costs no allocation.
func (r *reader) init(ctx context.Context, f *Front, ss grpc.ServerStream) {
	r.front, r.stream = f, ss
	r.raw, _ = grpc.ServerTransportStreamFromContext(ctx).(transportStream)
}

// read reads the next message, for which hold has the room. After io.EOF there is none; any other error is a fault. Of
// a message that there was no room for the client is told so, and nothing of it is left: the next one can be read.
func (r *reader) read(ctx context.Context, frame *inference.Frame, hold *room.Hold) error {
	if r.raw == nil { // no stream of gRPC's own transport: the length is known when all is there
		if err := r.stream.RecvMsg(frame); err != nil {
			return r.front.readFault(err)
		}
		if err := hold.Begin(ctx, r.front.opts.Room, frame.Len()); err != nil {
			frame.Free()
			return noRoom(err)
		}
		hold.Read(frame.Len())
		return nil
	}
	if err := r.raw.ReadMessageHeader(r.prefix[:]); err != nil {
		return r.front.readFault(err)
	}
	length := int(binary.BigEndian.Uint32(r.prefix[1:]))
	if r.prefix[0] > 1 {
		return fault.New(fault.InvalidArgument, "the request could not be read: %d is no flag of a gRPC message", r.prefix[0])
	}
	if length > r.front.opts.MaxMessage {
		return r.front.tooLarge(nil)
	}
	if err := hold.Begin(ctx, r.front.opts.Room, length); err != nil {
		return r.drop(length, noRoom(err))
	}
	data, err := r.inTime(ctx, length, hold)
	if err != nil {
		hold.Free()
		return err
	}
	if r.prefix[0] == 1 {
		if data, err = r.inflate(ctx, data, hold); err != nil {
			hold.Free()
			return err
		}
	}
	frame.Buf = slices.Grow(data, inference.Headroom)
	hold.Read(data.Len())
	return nil
}

// inTime is bytes with a limit on how long that takes. What is small has little room, and is not worth a timer.
func (r *reader) inTime(ctx context.Context, length int, hold *room.Hold) (mem.BufferSlice, error) {
	if length <= room.Small {
		return r.bytes(ctx, length, hold)
	}
	timer := time.AfterFunc(r.front.readTimeout, r.end)
	defer timer.Stop()
	data, err := r.bytes(ctx, length, hold)
	if err != nil && r.late.Load() {
		err = r.tooLate()
	}
	return data, err
}

// end ends the stream, and with it what waits for its bytes.
func (r *reader) end() {
	r.late.Store(true)
	_ = r.raw.WriteStatus(status.Convert(toStatus(r.tooLate())))
}

func (r *reader) tooLate() error {
	return fault.New(fault.InvalidArgument, "the message did not arrive within %v", r.front.readTimeout)
}

// bytes reads the bytes of a message, with room to append to them.
func (r *reader) bytes(ctx context.Context, length int, hold *room.Hold) (mem.BufferSlice, error) {
	var all mem.BufferSlice
	for read, next := 0, room.First; ; next = min(2*next, room.Chunk) {
		n := min(length-read, next)
		if err := hold.Need(ctx, read+n); err != nil {
			all.Free()
			return nil, r.drop(length-read, noRoom(err))
		}
		data, err := r.raw.Read(n)
		if err != nil {
			all.Free()
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, r.front.readFault(err)
		}
		if read += n; read >= length && all == nil {
			return append(make(mem.BufferSlice, 0, len(data)+inference.Headroom), data...), nil
		}
		all = append(all, data...)
		if read >= length {
			return all, nil
		}
	}
}

// drop ends the reading of a message that is not wanted. In a stream that may have others it reads what is left of it, and
// holds nothing.
func (r *reader) drop(left int, refusal error) error {
	for left > 0 && r.further {
		n := min(left, room.Small)
		data, err := r.raw.Read(n)
		if err != nil {
			return r.front.readFault(err)
		}
		data.Free()
		left -= n
	}
	return refusal
}

// inflate decompresses a message, which it gives back.
func (r *reader) inflate(ctx context.Context, data mem.BufferSlice, hold *room.Hold) (mem.BufferSlice, error) {
	defer data.Free()
	name := r.raw.RecvCompress()
	compressor := encoding.GetCompressor(name)
	if compressor == nil {
		return nil, &fault.Fault{Kind: fault.NotServed, Msg: "messages compressed with " + name + " are not served; send gzip or nothing"}
	}
	packed := data.Reader()
	defer func() { _ = packed.Close() }()
	z, err := compressor.Decompress(packed)
	if err != nil {
		return nil, fault.Wrap(fault.InvalidArgument, err, "the request is not valid %s, which grpc-encoding says it is", name)
	}
	var all mem.BufferSlice
	pool := mem.DefaultBufferPool()
	for size := 0; ; {
		b := pool.Get(room.Small)
		n, err := fill(z, *b)
		*b = (*b)[:n]
		all = append(all, mem.NewBuffer(b, pool))
		size += n
		switch {
		case size > r.front.opts.MaxMessage:
			err = r.front.tooLarge(nil)
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			err = fault.Wrap(fault.InvalidArgument, err, "the request is not valid %s, which grpc-encoding says it is", name)
		default:
			if err = hold.Need(ctx, data.Len()+size+room.Small); err != nil {
				err = noRoom(err)
			}
		}
		if err != nil {
			all.Free()
			return nil, err
		}
	}
}

// fill reads until b is full. Nothing is read after an error: gRPC gives a reader that has come to its end to others.
func fill(z io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = z.Read(b[n:])
		n += m
	}
	return n, err
}

// noRoom is the fault of a message that there was no room for.
func noRoom(err error) error {
	if errors.Is(err, room.ErrFull) {
		return fault.NoMemory()
	}
	return fault.Wrap(fault.Cancelled, err, "the caller went away while its request waited to be read")
}
