package httpfront

import (
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/internal/room"
)

const firstRead = 64 << 10

// body reads the whole body, inflated, up to the cap on messages.
//
// The deadline for it was set when the request came (see ServeHTTP). It is lifted once the body is there: while a call
// runs, the server reads on to notice that the client hangs up, and a deadline would look like that. After a failure
// it stays, and the connection ends, or the server would wait without limit for the rest of the body.
func (x *exchange) body() ([]byte, error) {
	b, err := x.readBody()
	if err != nil {
		x.w.Header().Set("Connection", "close")
		return nil, err
	}
	_ = x.control.SetReadDeadline(time.Time{})
	return b, nil
}

func (x *exchange) readBody() ([]byte, error) {
	limit := int64(x.front.MaxMessage)
	if x.r.ContentLength > limit {
		return nil, x.tooLarge()
	}
	if err := x.hold.Begin(x.r.Context(), x.front.Room, int(x.r.ContentLength)); err != nil {
		return nil, x.noRoom(err)
	}
	src, known := io.Reader(http.MaxBytesReader(x.w, x.r.Body, limit)), x.r.ContentLength
	switch encoding := strings.ToLower(strings.TrimSpace(x.r.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(src)
		if err != nil {
			return nil, x.unreadable(encoding, err)
		}
		src, known = z, -1
	case "deflate":
		z, err := zlib.NewReader(src)
		if err != nil {
			return nil, x.unreadable(encoding, err)
		}
		src, known = z, -1
	default:
		return nil, fault.New(fault.InvalidArgument, "Content-Encoding %q is not served; send gzip, deflate or nothing", clip(encoding))
	}
	need := func(bytes int) error { return x.hold.Need(x.r.Context(), bytes) }
	b, err := readAll(io.LimitReader(src, limit+1), known, need)
	if errors.Is(err, room.ErrFull) {
		return nil, x.noRoom(err)
	}
	if err != nil {
		return nil, x.unreadable(x.r.Header.Get("Content-Encoding"), err)
	}
	if int64(len(b)) > limit {
		return nil, x.tooLarge()
	}
	x.bodyLen = len(b)
	x.hold.Read(len(b))
	return b, nil
}

// noRoom is the fault of a body that there was no room for.
func (x *exchange) noRoom(err error) error {
	if errors.Is(err, room.ErrFull) {
		return fault.NoMemory()
	}
	return fault.Wrap(fault.Cancelled, err, "the caller went away while its request waited to be read")
}

// readAll reads to the end. known is the expected size or -1; memory grows with what has come, not with what was announced,
// and need is asked for it beforehand.
func readAll(r io.Reader, known int64, need func(bytes int) error) ([]byte, error) {
	size := int64(firstRead)
	if known >= 0 {
		size = min(size, known+1) // the last byte is where the end is noticed
	}
	b := make([]byte, 0, size)
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
		if len(b) == cap(b) {
			next := 2 * int64(cap(b))
			if known >= int64(len(b)) {
				next = min(next, known+1)
			}
			if err := need(int(next)); err != nil {
				return nil, err
			}
			grown := make([]byte, len(b), next)
			copy(grown, b)
			b = grown
		}
	}
}

func (x *exchange) tooLarge() error {
	return fault.New(fault.TooLarge, "the body is larger than the %d bytes accepted here; send smaller batches, or ask the operator to raise listen.max_message", x.front.MaxMessage)
}

// unreadable turns an error of reading a body into a fault that blames rightly.
func (x *exchange) unreadable(encoding string, err error) error {
	var tooLarge *http.MaxBytesError
	var network net.Error
	switch {
	case errors.As(err, &tooLarge):
		return x.tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return fault.Wrap(fault.InvalidArgument, err, "the body did not arrive within %v", x.front.BodyTimeout)
	case x.r.Context().Err() != nil:
		return fault.Wrap(fault.Cancelled, context.Cause(x.r.Context()), "the caller went away while its request was being read")
	case encoding != "":
		return fault.Wrap(fault.InvalidArgument, err, "the body is not valid %s, which Content-Encoding says it is", clip(encoding))
	}
	return fault.Wrap(fault.InvalidArgument, err, "the body ended before its announced length")
}

// clip bounds what is repeated of a client's words.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}
