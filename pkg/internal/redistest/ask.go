package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// ask sends one command over a connection of its own. Elements of lists come back a line each.
func ask(addr string, command []string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(command))
	for _, word := range command {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(conn, request.String()); err != nil {
		return "", err
	}
	return answer(bufio.NewReader(conn))
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
