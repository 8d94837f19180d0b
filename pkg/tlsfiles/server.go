// Package tlsfiles makes TLS of certificates, keys and authorities in files, and follows the files: what is in them when
// they change holds for connections made from then on. Files that cannot be used change nothing, and the log says why;
// it also says when a certificate is about to expire.
package tlsfiles

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/pollfile"
)

// ServerFiles are the files of a server, PEM all of them.
type ServerFiles struct {
	Cert string // certificate chain, leaf first
	Key  string
	// ClientCA has the authorities of clients. Where it is set, a client's certificate is verified; one need not be sent.
	ClientCA string
}

func (f ServerFiles) paths() []string {
	if f.ClientCA == "" {
		return []string{f.Cert, f.Key}
	}
	return []string{f.Cert, f.Key, f.ClientCA}
}

// Options of both sides; the zero Options are right for a gateway.
type Options struct {
	Log   *slog.Logger  // nil is none
	Every time.Duration // how often files are looked at; 0 is pollfile.Every
	// Changed, where set, is told whenever the files say something else than before, or cannot be read any more: hashes of
	// what was and what is now in force, and why the change was refused, where it was. For the record of changes.
	Changed func(old, next string, err error)
}

func (o Options) logger() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}

// Server is the TLS of a port.
type Server struct {
	files   ServerFiles
	log     *slog.Logger
	current atomic.Pointer[tls.Config]
	follower
}

// NewServer reads the files and begins to follow them. Its error names the file that is wrong.
func NewServer(files ServerFiles, o Options) (*Server, error) {
	s := &Server{files: files, log: o.logger().With("cert", files.Cert)}
	read, err := pollfile.Read(files.paths()...)
	if err == nil {
		err = s.use(read)
	}
	if err != nil {
		return nil, err
	}
	s.follow(o, files.paths(), read, s.changed)
	return s, nil
}

// use takes over what the files say, or nothing.
func (s *Server) use(read pollfile.Files) error {
	cert, err := keyPair(read.Texts[0], read.Texts[1], s.files.Cert, s.files.Key)
	if err != nil {
		return err
	}
	c := &tls.Config{
		Certificates: []tls.Certificate{cert},
		MinVersion:   tls.VersionTLS12,
		// A gRPC client offers h2 alone, and a web client both: that one is better served over HTTP/1.1 here.
		NextProtos: []string{"http/1.1", "h2"},
	}
	if s.files.ClientCA != "" {
		if c.ClientCAs, err = pool(read.Texts[2], s.files.ClientCA); err != nil {
			return err
		}
		c.ClientAuth = tls.VerifyClientCertIfGiven
		// A session that is resumed was verified by the authorities of its time, which may be others now.
		c.SessionTicketsDisabled = true
	}
	s.current.Store(c)
	s.watchExpiry(s.log, cert.Leaf)
	return nil
}

func (s *Server) changed(read pollfile.Files, err error) {
	if err == nil {
		err = s.use(read)
	}
	s.record(read, err)
	if err != nil {
		s.log.Error("files of TLS have changed and cannot be used; what was read before stays in force", "error", err.Error())
		return
	}
	s.log.Info("files of TLS have changed and are in force for new connections")
}

// Config is for tls.Server. It never changes, and always leads to what the files say.
func (s *Server) Config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current.Load(), nil },
	}
}

// follower follows files in the background.
type follower struct {
	end     context.CancelFunc
	running sync.WaitGroup

	told func(old, next string, err error) // nil: nobody keeps a record
	sum  [sha256.Size]byte                 // of what is in force; the watcher's own

	mu   sync.Mutex
	leaf *x509.Certificate // the certificate in force; nil for none
	log  *slog.Logger
}

func (f *follower) follow(o Options, paths []string, seen pollfile.Files, changed func(pollfile.Files, error)) {
	ctx, end := context.WithCancel(context.Background())
	f.end, f.told, f.sum = end, o.Changed, seen.Sum
	if len(paths) > 0 {
		f.running.Go(func() { pollfile.Watch(ctx, o.Every, paths, seen.Sum, changed) })
	}
	f.running.Go(func() { f.remind(ctx) })
}

// record tells what came of files that have changed.
func (f *follower) record(read pollfile.Files, err error) {
	old := f.sum
	if err == nil {
		f.sum = read.Sum
	}
	if f.told != nil && (err != nil || f.sum != old) {
		f.told(hex.EncodeToString(old[:]), hex.EncodeToString(f.sum[:]), err)
	}
}

// Close stops following. Connections go on, and new ones can be made with what was read last.
func (f *follower) Close() {
	f.end()
	f.running.Wait()
}

const (
	expiryNear   = 7 * 24 * time.Hour
	expiryRemind = time.Hour
)
