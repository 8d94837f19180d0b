package httpfront

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/model-gateway/model-gateway/pkg/fault"
)

const (
	jsonType   = "application/json"
	binaryType = "application/octet-stream"
	// Answers below this go out as they are: the encoding's own bytes would be most of what they save.
	leastEncoded = 512
)

// write sends an answer. compress lets it be compressed if the client asks and it is worth it; only
// answers with tensors are, since clients read the short ones without looking at their encoding.
func (x *exchange) write(status int, contentType string, body []byte, compress bool) {
	h := x.w.Header()
	x.identify(h)
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	if compress {
		h.Add("Vary", "Accept-Encoding")
		if encoding := acceptable(x.r.Header.Values("Accept-Encoding")); encoding != "" && len(body) >= leastEncoded {
			body = encode(encoding, body)
			h.Set("Content-Encoding", encoding)
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_ = x.control.SetWriteDeadline(time.Now().Add(x.front.AnswerTimeout))
	x.begun = true
	x.hold.Answered()
	x.front.Room.Charge(len(body)) // until the client has taken it, slow as it may be
	defer x.front.Room.Discharge(len(body))
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body) // fails only when the client is gone
}

// identify puts on the answer what the call found out, of a failed one too.
func (x *exchange) identify(h http.Header) {
	if x.call == nil {
		return
	}
	if id := x.call.RequestID; id != "" {
		h.Set("X-Request-Id", id)
	}
	if d := x.call.Degraded; d != nil {
		h.Set("X-Gateway-Degraded", fault.Of(d.Cause).Kind.Reason())
	}
	if t := x.call.Target; t != nil && t.Absent == nil {
		h.Set("X-Gateway-Target", t.Name)
		h.Set("X-Gateway-Upstream", t.Upstream)
		if t.Version != "" {
			h.Set("X-Gateway-Model-Version", t.Version)
		}
	}
}

// fail answers with the fault that err is.
func (x *exchange) fail(err error) {
	f := fault.Of(err)
	if wait := f.Retry(); wait > 0 {
		x.w.Header().Set("Retry-After", seconds(wait))
	}
	if f.HTTP() == http.StatusUnauthorized {
		x.w.Header().Set("WWW-Authenticate", "Bearer") // HTTP wants it there
	}
	if f.Quota != nil {
		tellQuota(x.w.Header(), f.Quota)
	}
	x.writeError(f.HTTP(), f.Kind.Reason(), f.Msg)
}

// tellQuota says of the bucket that refused how much it holds, has left, and in how many seconds it is full again.
func tellQuota(h http.Header, q *fault.Quota) {
	h.Set("RateLimit-Limit", strconv.FormatInt(int64(q.Burst), 10))
	h.Set("RateLimit-Remaining", strconv.FormatInt(int64(max(q.Remaining, 0)), 10))
	h.Set("RateLimit-Reset", seconds(q.Reset))
}

// seconds is a duration in whole seconds, begun ones included.
func seconds(d time.Duration) string {
	n := d / time.Second
	if d%time.Second > 0 {
		n++
	}
	return strconv.FormatInt(int64(n), 10)
}

func (x *exchange) writeError(status int, reason, text string) {
	b, _ := jsontext.AppendQuote([]byte(`{"error":`), text)
	b, _ = jsontext.AppendQuote(append(b, `,"reason":`...), reason)
	x.write(status, jsonType, append(b, '}'), false)
}

// acceptable chooses among the encodings that the client accepts: gzip, else deflate, else "".
func acceptable(accept []string) string {
	deflate := false
	for _, line := range accept {
		for part := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(part, ";")
			name = strings.ToLower(strings.TrimSpace(name))
			if (name != "gzip" && name != "deflate" && name != "*") || refused(params) {
				continue
			}
			if name != "deflate" {
				return "gzip"
			}
			deflate = true
		}
	}
	if deflate {
		return "deflate"
	}
	return ""
}

// refused reports whether the parameters of an encoding say q=0.
func refused(params string) bool {
	_, q, ok := strings.Cut(strings.ReplaceAll(params, " ", ""), "q=")
	if !ok {
		return false
	}
	v, err := strconv.ParseFloat(q, 64)
	return err == nil && v == 0
}

// Writers keep large tables, so they are used again.
var (
	gzips = sync.Pool{New: func() any { z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed); return z }}
	zlibs = sync.Pool{New: func() any { z, _ := zlib.NewWriterLevel(io.Discard, zlib.BestSpeed); return z }}
)

// encode compresses. What HTTP calls deflate is the zlib format.
func encode(encoding string, body []byte) []byte {
	pool := &gzips
	if encoding == "deflate" {
		pool = &zlibs
	}
	z := pool.Get().(interface {
		io.WriteCloser
		Reset(io.Writer)
	})
	var out bytes.Buffer
	out.Grow(len(body)/4 + 64)
	z.Reset(&out)
	_, _ = z.Write(body) // a bytes.Buffer takes everything
	_ = z.Close()
	z.Reset(io.Discard)
	pool.Put(z)
	return out.Bytes()
}
