package grpcfront

import (
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/model-gateway/model-gateway/pkg/internal/socket"
)

// handshaken are the credentials of a server whose connections come with their TLS handshake done, or without TLS. They have
// each call find the link that it came by.
type handshaken struct {
	credentials.TransportCredentials // of connections without TLS
	front                            *Front
}

// ServerHandshake tells gRPC what the handshake found out.
func (h handshaken) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	l := &link{Conn: c, front: h.front}
	t, ok := c.(*tls.Conn)
	if !ok {
		conn, info, err := h.TransportCredentials.ServerHandshake(c)
		if err != nil {
			return nil, nil, err
		}
		l.Conn = socket.Quick(conn)
		return l, &linked{AuthInfo: info, link: l}, nil
	}
	info := &credentials.TLSInfo{State: t.ConnectionState()}
	info.SecurityLevel = credentials.PrivacyAndIntegrity
	return l, &linked{AuthInfo: info, link: l, tls: &info.State}, nil
}

// Clone implements credentials.TransportCredentials.
func (h handshaken) Clone() credentials.TransportCredentials { return h }

// linked is what gRPC keeps of a connection and gives to each of its calls.
type linked struct {
	credentials.AuthInfo
	link *link
	tls  *tls.ConnectionState // nil without TLS; calls point at it and need not copy it
}
