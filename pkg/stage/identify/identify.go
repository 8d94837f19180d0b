// Package identify finds out who asks and under which names the request is known: request id, trace, caller, user.
//
// A name sent in the message itself (metadata of a PredictionRequest) goes before one sent as a header, once the message has
// been read, which is done only for a sender that is known. A request id
// that is missing or not clean is replaced by a fresh UUIDv7, so that every call can be found in the logs of all hops,
// a refused one too.
//
// The user is whom the caller names only where callers may; else it is the one that the caller's credential names, or the
// caller itself, and what was sent is taken out of the call, so that no later stage can see it.
package identify

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"

	"github.com/google/uuid"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	maxID   = 128 // bytes of a request or trace id
	maxUser = 256 // bytes of a user id
)

// Authenticator finds out which declared caller sends a call, by its metadata and its connection. pkg/callers has the
// implementation.
type Authenticator interface {
	// Authenticate returns the caller, and the user that its credential names, "" when it names none. A nil caller
	// without an error means that nobody has to say who it is. The error is a fault.
	Authenticate(ctx context.Context, c *inference.Call) (caller *inference.Caller, user string, err error)
}

// Stage identifies calls. Its zero value trusts the network: the user that is sent is believed.
type Stage struct {
	// Auth, where set, is asked about every unary call, about a stream when it opens, and again about each of its messages.
	Auth Authenticator
}

// Wrap identifies each call. A message of a stream takes over what the stream's opening said and its
// own metadata betters it.
func (s Stage) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		if c.Stream != nil {
			c.Identity = c.Stream.Identity
			fromMessage(c)
			if err := s.again(ctx, c); err != nil {
				return err
			}
			userOfMessage(c)
			return next(ctx, c)
		}
		if err := s.identify(ctx, c); err != nil {
			return err
		}
		return next(ctx, c)
	}
}

// Open identifies the client stream as a whole.
func (s Stage) Open(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		if err := s.identify(ctx, c); err != nil {
			return err
		}
		return next(ctx, c)
	}
}

// identify finds out everything about a call or a stream. A call that is refused has its ids all the same, and no user.
func (s Stage) identify(ctx context.Context, c *inference.Call) error {
	named(c)
	user := ""
	if s.Auth != nil {
		var err error
		if c.Caller, user, err = s.Auth.Authenticate(ctx, c); err != nil {
			c.Caller = nil
			dropUser(c)
			delete(c.Incoming, userHeader)
			return err
		}
	}
	setUser(c, user)
	if !mayNameUsers(c.Caller) {
		delete(c.Incoming, userHeader)
	}
	userOfMessage(c)
	return nil
}

// again looks at the credential of a stream for one of its messages: keys are taken away, and tokens expire, while streams
// are open. It costs what it costs a unary call. A message that is refused leaves the stream open.
func (s Stage) again(ctx context.Context, c *inference.Call) error {
	if s.Auth == nil {
		return nil
	}
	caller, user, err := s.Auth.Authenticate(ctx, c)
	switch {
	case err != nil:
		c.Caller, c.User, c.OwnUser = nil, "", false
		dropUser(c)
		return err
	case caller == c.Caller: // as when the stream was opened
		return nil
	}
	c.Caller = caller
	setUser(c, user)
	return nil
}

// setUser sets whom a call is made for, as far as headers and credential say; user is the one in the credential.
func setUser(c *inference.Call, user string) {
	c.User, c.OwnUser = user, false
	if v := first(c.Incoming, userHeader); v != "" && len(v) <= maxUser && mayNameUsers(c.Caller) {
		c.User = v
	}
	if c.User == "" && c.Caller != nil {
		c.User, c.OwnUser = c.Caller.Name, true
	}
}

// IDs gives calls their names, and asks nobody: it stands before the first stage that may refuse.
type IDs struct{}

// Wrap names unary calls; messages of a stream have the stream's names and their own.
func (IDs) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		if c.Stream == nil {
			named(c)
		}
		return next(ctx, c)
	}
}

// Open names a client stream.
func (IDs) Open(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		named(c)
		return next(ctx, c)
	}
}

// Message reads the message of a unary call, and takes the names in it. It stands behind everything that can refuse a call by
// its headers and its connection. Messages of streams have been read.
type Message struct{}

// Wrap reads.
func (Message) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		if c.Source != nil {
			if err := c.Read(); err != nil {
				return err
			}
			fromMessage(c)
			userOfMessage(c)
		}
		return next(ctx, c)
	}
}

// named gives c its ids, once.
func named(c *inference.Call) {
	if c.RequestID != "" {
		return
	}
	fromHeaders(c)
	fromMessage(c)
	complete(&c.Identity)
}

// mayNameUsers: on a trusted network everybody may.
func mayNameUsers(caller *inference.Caller) bool { return caller == nil || caller.MayNameUsers }

const (
	userHeader = "x-user-id"
	userField  = "user_id" // in the metadata of a message
)

// userOfMessage believes the user in a message, or takes it out.
func userOfMessage(c *inference.Call) {
	if len(c.Head.Metadata) == 0 {
		return
	}
	if !mayNameUsers(c.Caller) {
		dropUser(c)
	} else if v := c.Head.Metadata[userField]; v != "" && len(v) <= maxUser {
		c.User, c.OwnUser = v, false
	}
}

func dropUser(c *inference.Call) {
	if len(c.Head.Metadata) > 0 {
		delete(c.Head.Metadata, userField)
	}
}

func fromHeaders(c *inference.Call) {
	if v := first(c.Incoming, "x-request-id"); cleanID(v) {
		c.RequestID = v
	}
	if v := first(c.Incoming, "traceparent"); v != "" {
		if id, sampled, ok := parseTraceParent(v); ok {
			c.TraceID, c.TraceParent, c.Sampled = id, v, sampled
			c.TraceState = first(c.Incoming, "tracestate")
		}
	}
	if v := first(c.Incoming, "x-trace-id"); cleanID(v) {
		c.TraceID = v
	}
}

func fromMessage(c *inference.Call) {
	if len(c.Head.Metadata) == 0 {
		return
	}
	if v := c.Head.Metadata["request_id"]; cleanID(v) {
		c.RequestID = v
	}
	if v := c.Head.Metadata["trace_id"]; cleanID(v) {
		c.TraceID = v
	}
}

// complete makes up the ids nobody sent.
func complete(id *inference.Identity) {
	if id.RequestID == "" {
		id.RequestID = newRequestID()
	}
	if id.TraceID == "" {
		var b [16]byte
		binary.NativeEndian.PutUint64(b[:8], rand.Uint64()|1) // all zeros would be no trace id
		binary.NativeEndian.PutUint64(b[8:], rand.Uint64())
		id.TraceID = hex.EncodeToString(b[:])
	}
}

// source feeds UUIDs from the runtime's ChaCha8 generator: a request id must be unique, not secret, and a
// system call for each would cost more than the rest of this stage.
type source struct{}

func (source) Read(p []byte) (int, error) {
	for i := 0; i < len(p); i += 8 {
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], rand.Uint64())
		copy(p[i:], b[:])
	}
	return len(p), nil
}

func newRequestID() string {
	id, err := uuid.NewV7FromReader(source{})
	if err != nil { // source never fails
		return uuid.NewString()
	}
	return id.String()
}

// cleanID reports whether v may be kept as an id: letters, digits and .-_ up to maxID bytes.
func cleanID(v string) bool {
	if v == "" || len(v) > maxID {
		return false
	}
	for i := range len(v) {
		b := v[i]
		if !(b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '-' || b == '_') {
			return false
		}
	}
	return true
}

// parseTraceParent reads a W3C traceparent of version 00 or later: version-traceid-parentid-flags.
func parseTraceParent(v string) (traceID string, sampled, ok bool) {
	if len(v) < 55 || v[2] != '-' || v[35] != '-' || v[52] != '-' || (len(v) > 55 && (v[:2] == "00" || v[55] != '-')) {
		return "", false, false
	}
	if !lowerHex(v[:2]) || v[:2] == "ff" || !lowerHex(v[3:35]) || !lowerHex(v[36:52]) || !lowerHex(v[53:55]) {
		return "", false, false
	}
	if v[3:35] == zeros[:32] || v[36:52] == zeros[:16] {
		return "", false, false
	}
	flags, err := hex.DecodeString(v[53:55])
	return v[3:35], err == nil && flags[0]&1 == 1, true
}

const zeros = "00000000000000000000000000000000"

func lowerHex(s string) bool {
	for i := range len(s) {
		if b := s[i]; !(b >= '0' && b <= '9' || b >= 'a' && b <= 'f') {
			return false
		}
	}
	return true
}

func first(md map[string][]string, key string) string {
	if v := md[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}
