// Package callers finds out which declared client sends a call: by an API key, a signed token (JWT), or the certificate
// of its connection.
//
// A key or token that is sent decides, and one that is wrong is refused even where the certificate would do: whoever
// sends a credential means it. Keys are known by their SHA-256 alone. Nothing that is sent is ever put into an error or a log.
// What callers there are is one immutable snapshot, replaced as a whole by Set, while calls go on.
package callers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Entry is a declared client and the ways in which it proves who it is; any of them will do.
type Entry struct {
	Name         string
	MayNameUsers bool
	Priority     inference.Priority
	Keys         []Hash // several can be live, so that a key can be replaced
	JWT          *JWT
	// SANs are globs for the names in its client certificate: URIs (spiffe://prod/ns/*/sa/batch) and DNS names
	// (*.batch.internal). A star stands for any text without a slash, and in a DNS name without a dot.
	SANs []string
}

// JWT says which signed tokens are an entry's.
type JWT struct {
	Issuer   string // as in iss
	JWKS     string // where the issuer's public keys are: an https or http URL, or a file
	Audience string // one of those in aud
	// Caller is the claim whose value must be the entry's name. "" takes every token of Issuer for Audience.
	// A dot leads into claims within claims, where no claim has the whole name.
	Caller string
	User   string // the claim with the user's name; "" when tokens name none
	Roles  string // the claim with roles: a list, or words in one text; "" when tokens have none
}

// Options of a Callers; the zero Options are right for a gateway.
type Options struct {
	Log    *slog.Logger // of trouble with keys of issuers; nil is none
	Client *http.Client // reads JWKS URLs; nil is a client with a timeout
	// Changed, where set, is told when the keys of an issuer, at a URL or in a file, are others than before, with the hashes
	// of both: for the record of changes.
	Changed func(where, old, next string)
}

// Callers knows the declared clients. Its methods may be called side by side.
type Callers struct {
	opts    Options
	current atomic.Pointer[snapshot]

	mu      sync.Mutex // held to change what is below
	sources map[string]*source
	closed  bool
	life    context.Context
	end     context.CancelFunc
	running sync.WaitGroup
}

// snapshot is what callers there are. It is never written again.
type snapshot struct {
	required bool
	keys     map[Hash]*inference.Caller
	issuers  map[string][]*tokens // by issuer, in the order of the entries
	names    []certificates
	verified *cache // of tokens; nil without issuers
	missing  *fault.Fault
}

// New makes a Callers that requires nothing of anybody until Set.
func New(o Options) *Callers {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Client == nil {
		o.Client = newClient()
	}
	c := &Callers{opts: o, sources: make(map[string]*source)}
	c.life, c.end = context.WithCancel(context.Background())
	c.current.Store(&snapshot{})
	return c
}

// Set replaces the callers, or changes nothing and says what is wrong with entries. Keys of issuers that stay are kept;
// those of new ones are read in the background. required: calls without a credential are refused; else nobody is
// asked for one, and whatever is sent is ignored.
func (c *Callers) Set(required bool, entries []Entry) error {
	if err := Check(entries); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errors.New("callers: closed")
	}
	s := &snapshot{required: required, keys: make(map[Hash]*inference.Caller), issuers: make(map[string][]*tokens)}
	used := make(map[string]*source)
	for i := range entries {
		e := &entries[i]
		who := &inference.Caller{Name: e.Name, MayNameUsers: e.MayNameUsers, Priority: e.Priority}
		for _, k := range e.Keys {
			s.keys[k] = who
		}
		for _, san := range e.SANs {
			s.names = append(s.names, certificates{glob: san, caller: who})
		}
		if e.JWT != nil {
			t := &tokens{JWT: *e.JWT, caller: who, source: c.source(e.JWT.JWKS)}
			t.valid = validator(t.Audience)
			s.issuers[t.Issuer] = append(s.issuers[t.Issuer], t)
			used[e.JWT.JWKS] = t.source
		}
	}
	if len(s.issuers) > 0 {
		s.verified = newCache()
	}
	s.missing = fault.New(fault.AuthMissing, "%s", waysIn(s))
	c.current.Store(s)
	for where, src := range c.sources {
		if used[where] == nil {
			src.stop()
			delete(c.sources, where)
		}
	}
	return nil
}

// source gives the keys at where, beginning to read them if nobody did. c.mu is held.
func (c *Callers) source(where string) *source {
	if s := c.sources[where]; s != nil {
		return s
	}
	s := newSource(where, c.opts)
	ctx, cancel := context.WithCancel(c.life)
	s.stop = cancel
	c.sources[where] = s
	c.running.Go(func() { s.run(ctx) })
	return s
}

// Required reports whether calls need a credential.
func (c *Callers) Required() bool { return c.current.Load().required }

// Close ends what reads keys in the background.
func (c *Callers) Close() {
	c.mu.Lock()
	c.closed = true
	c.end()
	c.mu.Unlock()
	c.running.Wait()
}

// waysIn tells a client without a credential what it may send.
func waysIn(s *snapshot) string {
	var ways []string
	if len(s.keys) > 0 {
		ways = append(ways, "a key as x-api-key or as authorization: Bearer")
	}
	if len(s.issuers) > 0 {
		ways = append(ways, "a signed token as authorization: Bearer")
	}
	if len(s.names) > 0 {
		ways = append(ways, "a client certificate over TLS")
	}
	if len(ways) == 0 {
		return "this gateway requires credentials and knows no callers; its operator has to declare some"
	}
	return "this call needs a credential: send " + strings.Join(ways, ", or ") + "; the operator of the gateway gives them out"
}

// Bounds on what may be declared.
const (
	maxEntries = 10_000
	maxName    = 128 // bytes
	maxGlob    = 512
)

// check says what is wrong with entries.
// Check says what is wrong with entries, as Set would.
func Check(entries []Entry) error {
	if len(entries) > maxEntries {
		return fmt.Errorf("%d callers; at most %d can be declared", len(entries), maxEntries)
	}
	names := make(map[string]bool, len(entries))
	owners := make(map[Hash]string)
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Name == "" || len(e.Name) > maxName:
			return fmt.Errorf("callers[%d].name: must have 1 to %d bytes", i, maxName)
		case names[e.Name]:
			return fmt.Errorf("callers[%d].name: %q is declared twice; give one entry several keys instead", i, e.Name)
		case len(e.Keys) == 0 && e.JWT == nil && len(e.SANs) == 0:
			return fmt.Errorf("callers[%d]: %q has no way in; give it keys, jwt or mtls", i, e.Name)
		}
		names[e.Name] = true
		for _, k := range e.Keys {
			switch owner, taken := owners[k]; {
			case k == Hash{}, k == HashKey(""):
				return fmt.Errorf("callers[%d].keys: a hash of no key; make one with: gateway key new", i)
			case taken && owner != e.Name:
				return fmt.Errorf("callers[%d].keys: %q and %q have the same key; every caller needs its own", i, owner, e.Name)
			}
			owners[k] = e.Name
		}
		if j := e.JWT; j != nil && (j.Issuer == "" || j.JWKS == "" || j.Audience == "") {
			return fmt.Errorf("callers[%d].jwt: issuer, jwks and audience are all needed, or tokens made for others would be taken", i)
		}
		for _, san := range e.SANs {
			if strings.Trim(san, "*") == "" || len(san) > maxGlob {
				return fmt.Errorf("callers[%d].mtls.san: %q must name somebody, in at most %d bytes", i, san, maxGlob)
			}
		}
	}
	return nil
}
