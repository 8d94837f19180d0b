package httpfront

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/room"
)

func TestAnAnswerOverHTTPHoldsRoomUntilItIsTakenOrItsTimeIsOverOrItsClientIsGone(t *testing.T) {
	values := "[" + strings.Repeat("1,", 9999) + "1]"
	request := post1("/v2/models/m/infer", tensor("FP32", "[10000]", values))
	const timeout = 30 * time.Second
	for name, client := range map[string]struct {
		take  int64 // bytes of the answer; then it leaves, unless it stays
		stays bool
	}{
		"takes nothing and stays": {0, true},
		"takes a part and stays":  {8 << 10, true},
		"takes a part and leaves": {8 << 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := room.New(room.Options{Bytes: 1 << 20})
				l, stop := serving(front(Config{Room: r, AnswerTimeout: timeout}))
				defer stop()
				c := l.dial()
				defer c.Close()
				if _, err := io.WriteString(c, request); err != nil {
					t.Fatal(err)
				}
				if _, err := io.CopyN(io.Discard, c, client.take); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if r.State().Bytes < 10_000 {
					t.Errorf("held are %+v", r.State())
				}
				if client.stays {
					<-time.After(timeout + time.Second)
				} else {
					_ = c.Close()
				}
				synctest.Wait()
				if s := r.State(); s != (room.State{}) {
					t.Errorf("still held: %+v", s)
				}
			})
		})
	}
}
