package callers

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"

	"github.com/model-gateway/model-gateway/pkg/internal/pollfile"
)

const (
	refreshEvery = 5 * time.Minute  // how old keys from a URL become
	retryEvery   = 15 * time.Second // after reading them has failed
	askEvery     = 5 * time.Second  // how often unknown keys may have them read again
	fetchTimeout = 5 * time.Second
	maxJWKS      = 1 << 20 // bytes
	maxKeys      = 256     // of one issuer
	maxTries     = 8       // keys that a token without kid is tried with
	maxWaiting   = 64      // calls that wait for keys at a time
	minRSA       = 2048    // bits
)

// newClient reads JWKS URLs. It follows no redirect from https to http.
func newClient() *http.Client {
	return &http.Client{
		Timeout: fetchTimeout,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= 3 {
				return errors.New("more than three redirects")
			}
			if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
				return errors.New("a redirect away from https")
			}
			return nil
		},
	}
}

// source is where the public keys of an issuer are. They are read at once, every five minutes (a file: whenever it has
// changed), and when a token names a key that is not among them. When that fails, the last ones stay in force.
type source struct {
	where  string
	client *http.Client // nil for a file
	log    *slog.Logger
	stop   context.CancelFunc

	changed func(where, old, next string) // nil: nobody keeps a record

	keys    atomic.Pointer[keySet] // nil until they could be read
	sum     [sha256.Size]byte      // of the text that keys are of; the reader's own
	wake    chan struct{}          // asks the reader to read now
	waiting atomic.Int32

	mu      sync.Mutex
	last    time.Time     // when reading last ended
	failing bool          // and whether it had failed
	ended   chan struct{} // closed when the reading that is under way or asked for has ended; nil when none is
}

// keySet is the keys of an issuer at one time. It is never written again.
type keySet struct {
	byID map[string][]publicKey
	all  []publicKey
}

type publicKey struct {
	alg string // the only algorithm it is for; "" for all that it can
	key any
}

// signature is what came of looking at a token's signature.
type signature struct {
	keys *keySet
	err  error
}

func newSource(where string, o Options) *source {
	s := &source{where: where, log: o.Log, changed: o.Changed, wake: make(chan struct{}, 1)}
	if strings.HasPrefix(where, "https://") || strings.HasPrefix(where, "http://") {
		s.client = o.Client
	}
	return s
}

// run reads the keys until ctx ends.
func (s *source) run(ctx context.Context) {
	for {
		s.begin()
		err := s.read(ctx)
		if ctx.Err() != nil {
			err = nil // nobody's failure
		}
		s.finish(err)
		wait := time.NewTimer(s.pause(err))
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-s.wake:
			wait.Stop()
		case <-wait.C:
		}
	}
}

// pause is how long to wait until the next reading. Replicas that started together do not stay together.
func (s *source) pause(err error) time.Duration {
	switch {
	case s.client == nil:
		return pollfile.Every
	case err != nil:
		return retryEvery
	}
	return refreshEvery - time.Duration(rand.Int64N(int64(refreshEvery/10)))
}

// begin notes that a reading is under way, unless somebody who asked for it did.
func (s *source) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = make(chan struct{})
	}
	select {
	case <-s.wake: // it is for this reading
	default:
	}
}

func (s *source) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
	if failed := err != nil; failed != s.failing {
		s.failing = failed
		if failed {
			s.log.Error("keys of an issuer cannot be read; the last ones stay in force", "jwks", s.where, "known", s.keys.Load() != nil, "error", err.Error())
		} else {
			s.log.Info("keys of an issuer can be read again", "jwks", s.where)
		}
	}
	close(s.ended)
	s.ended = nil
}

// read reads the keys once.
func (s *source) read(ctx context.Context) error {
	body, err := s.text(ctx)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	if sum == s.sum && s.keys.Load() != nil {
		return nil
	}
	set, err := parseKeys(body)
	if err != nil {
		return err
	}
	old, first := s.sum, s.keys.Load() == nil
	s.sum = sum
	s.keys.Store(set)
	if s.changed != nil && !first {
		s.changed(s.where, hex.EncodeToString(old[:]), hex.EncodeToString(sum[:]))
	}
	s.log.Info("keys of an issuer", "jwks", s.where, "keys", len(set.all))
	return nil
}

func (s *source) text(ctx context.Context) ([]byte, error) {
	if s.client == nil {
		f, err := pollfile.Read(s.where)
		if err != nil {
			return nil, err
		}
		return f.Texts[0], nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.where, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	answer, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", answer.Status)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxJWKS+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxJWKS {
		return nil, fmt.Errorf("the answer has more than %d bytes", maxJWKS)
	}
	return body, nil
}

// parseKeys reads a JWK Set. Keys of kinds that no token may be signed with are passed over.
func parseKeys(body []byte) (*keySet, error) {
	var listed jwkset.JWKSMarshal
	if err := json.Unmarshal(body, &listed); err != nil {
		return nil, errors.New("it is not a JWK Set")
	}
	if len(listed.Keys) > maxKeys {
		return nil, fmt.Errorf("it has more than %d keys", maxKeys)
	}
	set := &keySet{byID: make(map[string][]publicKey)}
	for _, k := range listed.Keys {
		if k.USE != "" && k.USE != jwkset.UseSig {
			continue
		}
		// The key itself is what counts. What would have to be fetched for it (x5u) is left alone.
		k.X5U, k.X5C = "", nil
		parsed, err := jwkset.NewJWKFromMarshal(k, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{SkipAll: true})
		if err != nil || !usable(parsed.Key()) {
			continue
		}
		p := publicKey{alg: string(k.ALG), key: parsed.Key()}
		set.all = append(set.all, p)
		set.byID[k.KID] = append(set.byID[k.KID], p)
	}
	if len(set.all) == 0 {
		return nil, errors.New("it has no key that a token may be signed with: RSA of 2048 bits or more, EC on a NIST curve, or Ed25519")
	}
	return set, nil
}

func usable(key any) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() >= minRSA && key.E >= 3
	case *ecdsa.PublicKey:
		_, err := key.ECDH() // also looks whether the point is on the curve
		return err == nil
	case ed25519.PublicKey:
		return len(key) == ed25519.PublicKeySize
	}
	return false
}

// verify looks at a token's signature over signed. It waits for keys only where there are none yet, or where
// the token names one that nobody knows and that was not looked for a moment ago.
func (s *source) verify(ctx context.Context, t *jwt.Token, signed string) signature {
	set := s.keys.Load()
	keys, known := set.find(t)
	if !known {
		asked := s.again(ctx)
		if ctx.Err() != nil {
			return signature{err: context.Cause(ctx)}
		}
		if set = s.keys.Load(); set == nil {
			return signature{err: errOutage}
		}
		if keys, known = set.find(t); !known {
			if s.outage() || !asked && s.overrun() {
				return signature{err: errOutage}
			}
			return signature{err: errUnknown}
		}
	}
	alg := t.Method.Alg()
	for _, k := range keys {
		if k.alg != "" && k.alg != alg {
			continue
		}
		if t.Method.Verify(signed, t.Signature, k.key) == nil {
			return signature{keys: set}
		}
	}
	return signature{err: errForged}
}

// find gives the keys that a token may be signed with.
func (set *keySet) find(t *jwt.Token) ([]publicKey, bool) {
	if set == nil {
		return nil, false
	}
	id, named := t.Header["kid"].(string)
	if !named || id == "" {
		return set.all, len(set.all) <= maxTries
	}
	keys := set.byID[id]
	return keys, len(keys) > 0
}

// again has the keys read again, and waits until they are. It reports false when that was not worth while, because they
// have just been read.
func (s *source) again(ctx context.Context) bool {
	if s.waiting.Add(1) > maxWaiting {
		s.waiting.Add(-1)
		return false
	}
	defer s.waiting.Add(-1)
	s.mu.Lock()
	if s.ended == nil {
		if time.Since(s.last) < askEvery {
			s.mu.Unlock()
			return false
		}
		s.ended = make(chan struct{})
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	ended := s.ended
	s.mu.Unlock()
	late := time.NewTimer(fetchTimeout)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
	case <-ctx.Done():
	}
	return true
}

// outage reports whether the keys could not be read last.
func (s *source) outage() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing
}

// overrun reports whether too many wait for keys for another one to do so.
func (s *source) overrun() bool { return s.waiting.Load() >= maxWaiting }
