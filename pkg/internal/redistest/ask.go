package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ask sends one command over a connection of its own. Elements of lists come back a line each.
func ask(addr string, command []string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, request(command)); err != nil {
		return "", err
	}
	return answer(bufio.NewReader(conn))
}

func request(command []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(command))
	for _, word := range command {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b.String()
}

// subscription is a connection on which a server tells what happens.
type subscription struct {
	conn net.Conn
	r    *bufio.Reader
}

// subscribe returns once the server has agreed to tell.
func subscribe(t testing.TB, addr, channel string) *subscription {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request([]string{"SUBSCRIBE", channel})); err != nil {
		t.Fatal(err)
	}
	s := &subscription{conn: conn, r: bufio.NewReader(conn)}
	if got := s.wait(t); got != "1" {
		t.Fatalf("SUBSCRIBE %s was answered by %q", channel, got)
	}
	return s
}

// wait gives the next message.
func (s *subscription) wait(t testing.TB) string {
	t.Helper()
	got, err := answer(s.r)
	if err != nil {
		t.Fatalf("waiting for news: %v", err)
	}
	parts := strings.SplitN(got, "\n", 3) // what it is, its channel, what is said
	return parts[len(parts)-1]
}

func answer(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", errors.New(rest)
	}
	n, err := strconv.Atoi(rest)
	if err != nil || n < 0 {
		return "", err // nil
	}
	if kind == '$' {
		text := make([]byte, n+2)
		_, err := io.ReadFull(r, text)
		return string(text[:n]), err
	}
	parts := make([]string, n)
	for i := range parts {
		if parts[i], err = answer(r); err != nil {
			return "", err
		}
	}
	return strings.Join(parts, "\n"), nil
}
