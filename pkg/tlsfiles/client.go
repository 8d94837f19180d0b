package tlsfiles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"

	"github.com/model-gateway/model-gateway/pkg/internal/pollfile"
)

// System stands for the authorities that the system trusts, in place of a file.
const System = "system"

// ClientFiles are the files of a client, PEM all of them. Two that are equal make the same connections.
type ClientFiles struct {
	CA         string // authorities of the server: System, or a file; "" is System
	Cert, Key  string // our own certificate chain and its key; both or neither
	ServerName string // to expect in the server's certificate; "" is the host that is dialled
}

func (f ClientFiles) paths() []string {
	var paths []string
	if f.CA != "" && f.CA != System {
		paths = append(paths, f.CA)
	}
	if f.Cert != "" {
		paths = append(paths, f.Cert, f.Key)
	}
	return paths
}

// Client is TLS toward a server, as gRPC's credentials. Each connection is made with what the files said last.
type Client struct {
	files   ClientFiles
	log     *slog.Logger
	current atomic.Pointer[tls.Config]
	follower
}

var _ credentials.TransportCredentials = (*Client)(nil)

// NewClient reads the files and begins to follow them. Its error names the file that is wrong.
func NewClient(files ClientFiles, o Options) (*Client, error) {
	if (files.Cert == "") != (files.Key == "") {
		return nil, errors.New("cert and key belong together: give both or neither")
	}
	c := &Client{files: files, log: o.logger()}
	read, err := pollfile.Read(files.paths()...)
	if err == nil {
		err = c.use(read)
	}
	if err != nil {
		return nil, err
	}
	c.follow(o, files.paths(), read, c.changed)
	return c, nil
}

// Config is for clients that are no gRPC clients. Our own certificate follows its file; the authorities are those of now.
func (c *Client) Config() *tls.Config {
	cfg := c.current.Load().Clone()
	if cfg.GetClientCertificate != nil {
		cfg.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return c.current.Load().GetClientCertificate(r)
		}
	}
	return cfg
}

// Files are what it was made of.
func (c *Client) Files() ClientFiles { return c.files }

func (c *Client) use(read pollfile.Files) error {
	texts := read.Texts
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.files.ServerName}
	if c.files.CA != "" && c.files.CA != System {
		roots, err := pool(texts[0], c.files.CA)
		if err != nil {
			return err
		}
		cfg.RootCAs, texts = roots, texts[1:]
	}
	if c.files.Cert == "" {
		c.current.Store(cfg)
		return nil
	}
	cert, err := keyPair(texts[0], texts[1], c.files.Cert, c.files.Key)
	if err != nil {
		return err
	}
	// Sent whatever authorities the server names, so that it can say what it does not like.
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	c.current.Store(cfg)
	c.watchExpiry(c.log.With("cert", c.files.Cert), cert.Leaf)
	return nil
}

func (c *Client) changed(read pollfile.Files, err error) {
	if err == nil {
		err = c.use(read)
	}
	c.record(read, err)
	if err != nil {
		c.log.Error("files of TLS have changed and cannot be used; what was read before stays in force", "error", err.Error())
		return
	}
	c.log.Info("files of TLS have changed and are in force for new connections", "ca", c.files.CA, "cert", c.files.Cert)
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *Client) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c.files.ServerName != "" {
		authority = c.files.ServerName
	}
	conn, info, err := credentials.NewTLS(c.current.Load()).ClientHandshake(ctx, authority, raw)
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return nil, nil, fmt.Errorf("%w; is tls.ca the right file?", err)
	}
	return conn, info, err
}

// ServerHandshake implements credentials.TransportCredentials. A client makes none.
func (c *Client) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are credentials of a client")
}

// Info implements credentials.TransportCredentials.
func (c *Client) Info() credentials.ProtocolInfo { return credentials.NewTLS(c.current.Load()).Info() }

// Clone implements credentials.TransportCredentials. The copy is the same, since nothing changes it from outside.
func (c *Client) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials; the name is part of ClientFiles.
func (c *Client) OverrideServerName(string) error {
	return errors.New("the name to expect is fixed when the credentials are made")
}
