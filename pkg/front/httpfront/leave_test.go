package httpfront

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// ask sends a probe over c and reports whether the answer asks for another connection.
func ask(t *testing.T, c net.Conn, r *bufio.Reader) (leave bool) {
	t.Helper()
	if _, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	a, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, a.Body); err != nil || a.StatusCode != http.StatusOK {
		t.Fatal(a.Status, err)
	}
	return a.Close
}

func TestClientsAreAskedToLeaveBeforeTheirConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Config{})
		l, stop := serving(f)
		defer stop()
		c := l.dial()
		r := bufio.NewReader(c)
		if ask(t, c, r) {
			t.Error("asked to leave while all is well")
		}
		f.Leave()
		if !ask(t, c, r) {
			t.Error("not asked to leave")
		}
		if _, err := r.ReadByte(); err == nil {
			t.Error("the connection is still open")
		}
	})
}

func TestAnOldConnectionIsLeftBetweenRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := serving(New(Config{MaxAge: 10 * time.Minute}))
		defer stop()
		c := l.dial()
		r := bufio.NewReader(c)
		begin := time.Now()
		for !ask(t, c, r) {
			if time.Since(begin) > 11*time.Minute {
				t.Fatalf("used for %s", time.Since(begin))
			}
			<-time.After(time.Minute) // of the bubble's clock
		}
		if used := time.Since(begin); used < 9*time.Minute {
			t.Errorf("left after %s", used)
		}
		if _, err := r.ReadByte(); err == nil {
			t.Error("the connection is still open")
		}
	})
}
