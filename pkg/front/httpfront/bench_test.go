package httpfront

import (
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

func BenchmarkPredict(b *testing.B) {
	for _, size := range []int{64, 600 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			f := front(Config{Pipeline: &discard{}})
			body := `{"model_name":"fraud","input_tensor":"` + base64.StdEncoding.EncodeToString(make([]byte, size)) + `"}`
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				f.ServeHTTP(w, httptest.NewRequest("POST", "/v1/predict", strings.NewReader(body)))
				if w.Code != 200 {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
