package promquery

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/model-gateway/model-gateway/pkg/internal/calm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers every question by answer.
func server(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(answer)
	c := New(s.URL + "/prom/")
	t.Cleanup(func() { c.Close(); s.Close() })
	return c
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func vector(result string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + result + `]}}`
}

// ask gives what comes back, a line a series.
func ask(ctx context.Context, c *Client) (string, error) {
	var b strings.Builder
	err := c.Vector(ctx, "up", func(labels map[string]string, v float64) {
		fmt.Fprintf(&b, "%s=%v;", labels["model"], v)
	})
	return b.String(), err
}

func TestAVectorIsGivenSeriesBySeries(t *testing.T) {
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/prom/api/v1/query" || r.URL.Query().Get("query") != "up" || r.URL.Query().Get("timeout") != "5" {
			t.Errorf("asked %s", r.URL)
		}
		_, _ = io.WriteString(w, vector(`{"metric":{"model":"a"},"value":[1.5,"0.25"]},{"metric":{"model":"b"},"value":[1,"NaN"]},{"metric":{},"value":[1,"+Inf"]},{"metric":{"model":"c"},"value":[1,"-1e400"]}`))
	})
	if got, err := ask(t.Context(), c); err != nil || got != "a=0.25;b=NaN;=+Inf;c=-Inf;" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAnEmptyAnswerIsNoError(t *testing.T) {
	if got, err := ask(t.Context(), server(t, says(200, vector("")))); err != nil || got != "" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestBadAnswersAreErrorsAndGiveNothing(t *testing.T) {
	one := `{"metric":{"model":"a"},"value":[1,"1"]}`
	for body, want := range map[string]string{
		"":                                  "not the JSON of Prometheus",
		"<html>Sign in</html>":              "not the JSON of Prometheus",
		"{}":                                `its status is ""`,
		vector(one)[:60]:                    "not the JSON of Prometheus",
		vector(one + `,{"value":[1,2]}`):    "a time and a text",
		vector(one + `,{"value":[1,null]}`): "a time and a text",
		vector(one + `,{"value":["1"]}`):    "a time and a text",
		vector(one + `,{"value":[1,"x"]}`):  "no number",
		vector(one + `,7`):                  "no vector",
		`{"status":"success","data":{"resultType":"matrix","result":[]}}`:                                                  `type "matrix"`,
		`{"status":"success","data":{"resultType":"vector"}}`:                                                              "no vector",
		`{"status":"error","errorType":"bad_data","error":"parse error: unexpected\n\u001b[31m` + longer(900) + `"}`:       "bad_data: parse error: unexpected  [31mxxxx",
		strings.Repeat(" ", MaxAnswer+1):                                                                                   "more than 16 MiB",
		vector(one + strings.Repeat(`,{"value":[1,"1"]}`, MaxSeries)):                                                      "at most 100000",
		`{"status":"success","data":{"resultType":"vector","result":` + strings.Repeat("[", 20_000):                        "not the JSON",
		`{"status":"success","data":{"resultType":"` + longer(1000) + `","result":[]}}`:                                    "type",
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"model":7},"value":[1,"1"]}` + "," + "]}}": "not the JSON",
	} {
		got, err := ask(t.Context(), server(t, says(200, body)))
		if err == nil || got != "" || !strings.Contains(err.Error(), want) || len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%.80q: gave %q, %v; want an error that says %q", body, got, err, want)
		}
	}
}

func longer(n int) string { return strings.Repeat("x", n) }

func TestAnErrorOfHTTPIsToldWithPrometheussOwnWords(t *testing.T) {
	_, err := ask(t.Context(), server(t, says(503, `{"status":"error","errorType":"timeout","error":"query timed out"}`)))
	if err == nil || err.Error() != "HTTP 503: timeout: query timed out" {
		t.Errorf("%v", err)
	}
	if _, err = ask(t.Context(), server(t, says(502, "bad gateway"))); err == nil || !strings.Contains(err.Error(), "HTTP 502, without a word") {
		t.Errorf("%v", err)
	}
	if _, err = ask(t.Context(), server(t, says(500, vector(`{"metric":{},"value":[1,"1"]}`)))); err == nil {
		t.Error("values under an error of HTTP were taken")
	}
}

func TestAServerThatIsGoneIsAnErrorWithoutTheQuestion(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	c := New("http://" + l.Addr().String())
	defer c.Close()
	if _, err := ask(t.Context(), c); err == nil || strings.Contains(err.Error(), "query=") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v", err)
	}
}

// dripping answers at once, and never ends the answer.
type dripping struct{}

func (dripping) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: io.NopCloser(io.MultiReader(strings.NewReader(`{"status":`), endless{r.Context()}))}, nil
}

type endless struct{ ctx context.Context }

func (e endless) Read([]byte) (int, error) {
	<-e.ctx.Done()
	return 0, e.ctx.Err()
}

func TestAServerThatNeverEndsItsAnswerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("http://prometheus:9090")
		c.http.Transport = dripping{}
		begin := time.Now()
		got, err := ask(t.Context(), c)
		if err == nil || got != "" || !strings.Contains(err.Error(), "no answer within 5s") || time.Since(begin) != Timeout {
			t.Errorf("%q, %v after %s", got, err, time.Since(begin))
		}
	})
}

func TestASmallAnswerThatUnpacksToAHugeOneIsRefused(t *testing.T) {
	var small bytes.Buffer
	z := gzip.NewWriter(&small)
	if _, err := z.Write(bytes.Repeat([]byte(" "), MaxAnswer+1)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil || small.Len() > 1<<20 {
		t.Fatal(err, small.Len())
	}
	c := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(small.Bytes())
	})
	calm.Moment(t, func() error { // in which unpacking takes less time than there is for an answer
		_, err := ask(t.Context(), c)
		if err == nil {
			t.Error("it was taken")
		}
		if err == nil || !strings.Contains(err.Error(), "more than 16 MiB") {
			return fmt.Errorf("it was not refused for its size: %w", err)
		}
		return nil
	})
}

func TestARedirectAwayFromHTTPSIsNotFollowed(t *testing.T) {
	plain, secret := mustRequest(t, "http://a/"), mustRequest(t, "https://a/")
	if followed(plain, []*http.Request{secret}) == nil || followed(secret, []*http.Request{plain, plain, plain}) == nil {
		t.Error("followed")
	}
	if err := followed(secret, []*http.Request{plain}); err != nil {
		t.Error(err)
	}
}

func mustRequest(t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		vector(`{"metric":{"model":"a"},"value":[1,"0.5"]}`), vector(""), vector(`{"value":[1,"NaN"]}`), "{}", "[]", "null",
		`{"status":"error","errorType":"x","error":"y"}`, `{"status":"success","data":{"resultType":"vector","result":null}}`, `{"data":{"result":[[[[`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := parse(body)
		if err != nil && (len(all) > 0 || len(err.Error()) > 2000) {
			t.Errorf("%d series beside an error of %d bytes", len(all), len(err.Error()))
		}
		for _, s := range all {
			_ = math.IsNaN(float64(s.Value))
		}
	})
}
