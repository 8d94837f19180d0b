package httpfront

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

func zipped(t *testing.T, encoding, body string) string {
	t.Helper()
	var b bytes.Buffer
	var z io.WriteCloser = gzip.NewWriter(&b)
	if encoding == "deflate" {
		z = zlib.NewWriter(&b)
	}
	if _, err := io.WriteString(z, body); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func unzipped(t *testing.T, encoding string, body io.Reader) string {
	t.Helper()
	var r io.Reader
	var err error
	switch encoding {
	case "gzip":
		r, err = gzip.NewReader(body)
	case "deflate":
		r, err = zlib.NewReader(body)
	default:
		r = body
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestCompressionBothWays(t *testing.T) {
	body, headLen := clientRequest()
	raw := strings.Repeat("\x00\x00\x80\x3f", 1000)
	large := strings.Replace(body[:headLen], `"shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}`, `"shape":[1,1000],"datatype":"FP32","parameters":{"binary_data_size":4000}`, 1)
	headLen = len(large)
	large += raw + body[len(body)-11:]
	for _, c := range []struct{ sent, accept, want string }{
		{"gzip", "gzip", "gzip"},
		{"deflate", "deflate", "deflate"},
		{"", "deflate, gzip;q=0.5", "gzip"},
		{"x-gzip", "", ""},
		{"identity", "gzip;q=0, deflate;q=0.0", ""},
		{"GZIP", "br", ""},
		{"", "*", "gzip"},
	} {
		payload := large
		if strings.Contains(strings.ToLower(c.sent), "gzip") {
			payload = zipped(t, "gzip", large)
		} else if c.sent == "deflate" {
			payload = zipped(t, "deflate", large)
		}
		w := send(front(Config{}), "POST", "/v2/models/m/infer", payload, "Inference-Header-Content-Length", strconv.Itoa(headLen), "Content-Encoding", c.sent, "Accept-Encoding", c.accept)
		if w.Code != 200 || w.Header().Get("Content-Encoding") != c.want || w.Header().Get("Content-Length") != strconv.Itoa(w.Body.Len()) {
			t.Errorf("%+v: %d, %v", c, w.Code, w.Header())
			continue
		}
		got := unzipped(t, c.want, w.Body)
		n, _ := strconv.Atoi(w.Header().Get("Inference-Header-Content-Length"))
		if got[n:] != large[headLen:] {
			t.Errorf("%+v: the raw bytes came back differently; the head was %s", c, got[:n])
		}
	}
}

func TestShortAnswersAreNotCompressed(t *testing.T) {
	w := send(front(Config{}), "POST", "/v2/models/m/infer", tensor("FP32", "[1]", "[1]"), "Accept-Encoding", "gzip")
	wantStatus(t, w, 200, `"data":[1.0]`)
	if w.Header().Get("Content-Encoding") != "" {
		t.Error("compressed all the same")
	}
}

func TestBadCompressionIsRefused(t *testing.T) {
	good := zipped(t, "gzip", tensor("FP32", "[1]", "[1]"))
	for _, c := range []struct{ encoding, body, says string }{
		{"br", "x", `Content-Encoding \"br\"`},
		{"gzip", "no gzip", "not valid gzip"},
		{"deflate", "no zlib", "not valid deflate"},
		{"gzip", good[:len(good)-4], "not valid gzip"},
		{"gzip", good[:len(good)-8] + "12345678", "not valid gzip"},
	} {
		wantStatus(t, send(front(Config{}), "POST", "/v2/models/m/infer", c.body, "Content-Encoding", c.encoding), 400, c.says)
	}
}

func TestBodiesAboveTheCapAre413(t *testing.T) {
	f := front(Config{MaxMessage: 1000})
	long := tensor("FP32", "[1]", "[1]") + strings.Repeat(" ", 1000)
	wantStatus(t, send(f, "POST", "/v2/models/m/infer", long), 413, "1000 bytes", "TOO_LARGE", "listen.max_message")
	wantStatus(t, send(f, "POST", "/v2/models/m/infer", zipped(t, "gzip", long), "Content-Encoding", "gzip"), 413, "1000 bytes")
	wantStatus(t, send(f, "POST", "/v2/models/m/infer", tensor("FP64", "[200]", "["+strings.Repeat("1,", 199)+"1]")), 413, "1000 bytes")

	r := httptest.NewRequest("POST", "/v2/models/m/infer", io.MultiReader(strings.NewReader(long))) // of unknown length
	if r.ContentLength != -1 {
		t.Fatal("the length is known")
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	wantStatus(t, w, 413, "1000 bytes")

	exact := tensor("FP32", "[1]", "[1]")
	exact += strings.Repeat(" ", 1000-len(exact))
	wantStatus(t, send(f, "POST", "/v2/models/m/infer", exact), 200)
}

func TestMemoryGrowsWithWhatComesNotWithWhatIsAnnounced(t *testing.T) {
	b, err := readAll(strings.NewReader("abc"), 1<<40, free)
	if err != nil || string(b) != "abc" || cap(b) > firstRead {
		t.Errorf("%q of capacity %d, %v", b, cap(b), err)
	}
	long := strings.Repeat("x", 10*firstRead+3)
	for _, known := range []int64{-1, int64(len(long))} {
		if b, err := readAll(strings.NewReader(long), known, free); err != nil || string(b) != long {
			t.Errorf("known %d: %d bytes, %v", known, len(b), err)
		}
	}
}

// free is room for everything.
func free(int) error { return nil }
