package portmux

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/socket"
)

// shake makes the TLS handshake on c, within what is left of its time, and tells by the protocol agreed on what c speaks. A client
// that agrees on none gets HTTP/1.1, since gRPC does not go without.
func (m *Mux) shake(c net.Conn) (told net.Conn, isHTTP2 bool, err error) {
	// The whole of it is bounded, writes too: a client that reads nothing must not keep its place.
	if err := c.SetWriteDeadline(time.Now().Add(m.Timeout)); err != nil {
		return nil, false, err
	}
	t := tls.Server(socket.Quick(c), m.TLS)
	if err := t.HandshakeContext(context.Background()); err != nil {
		var record tls.RecordHeaderError
		if errors.As(err, &record) && record.Conn != nil && speaksHTTP(record.RecordHeader) {
			_, _ = io.WriteString(record.Conn, "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nThis port speaks TLS: use https.\n")
		}
		m.Log.Debug("a TLS handshake failed", "peer", c.RemoteAddr().String(), "error", err.Error())
		return nil, false, err
	}
	if err := c.SetWriteDeadline(time.Time{}); err != nil {
		return nil, false, err
	}
	return t, t.ConnectionState().NegotiatedProtocol == "h2", nil
}

// speaksHTTP reports whether the first bytes are those of a request in HTTP/1 without TLS.
func speaksHTTP(header [5]byte) bool {
	for _, method := range []string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH"} {
		if strings.HasPrefix(string(header[:]), method) {
			return true
		}
	}
	return false
}
