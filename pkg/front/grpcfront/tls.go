package grpcfront

import (
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
)

// handshaken are the credentials of a server whose connections come with their TLS handshake done, or without TLS.
type handshaken struct {
	credentials.TransportCredentials // of connections without TLS
}

// tlsInfo is credentials.TLSInfo behind a pointer, so that a call can point at the state and need not copy it.
type tlsInfo struct{ credentials.TLSInfo }

// ServerHandshake tells gRPC what the handshake found out.
func (h handshaken) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	t, ok := c.(*tls.Conn)
	if !ok {
		return h.TransportCredentials.ServerHandshake(c)
	}
	info := &tlsInfo{}
	info.State = t.ConnectionState()
	info.SecurityLevel = credentials.PrivacyAndIntegrity
	return c, info, nil
}

// Clone implements credentials.TransportCredentials.
func (h handshaken) Clone() credentials.TransportCredentials { return h }
