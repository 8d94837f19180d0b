package scripts

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/scripts/cases"
)

// What is kept of a call, and how often.
const (
	recordEvery   = 100 * time.Millisecond // for each script
	maxEntries    = 64                     // headers, metadata, parameters: each
	maxRecordText = 1 << 10                // bytes of a value; longer ones are left out
	maxRecordSize = 8 << 10                // bytes of all values of a call together
)

// recorder keeps the last calls of models with scripts, a sample: at most ten a second of each script, and 1,000 in all. A
// call that is not kept costs one atomic load. Users are as they are; credentials are never kept.
type recorder struct {
	mu   sync.Mutex
	ring []recorded
	next int
}

type recorded struct {
	script string
	call   cases.Call
}

// record keeps c. Everything is copied: the buffers of the call are somebody else's.
func (r *recorder) record(script string, c *inference.Call, at time.Time) {
	k := keeper{room: maxRecordSize}
	call := cases.Call{
		Model: k.text(c.Head.Model), User: k.text(c.User), Caller: k.text(c.CallerName()), Version: k.text(c.Head.Version),
		Rows: c.Head.Rows, Sequence: cases.Sequence{ID: k.text(c.Head.Sequence.ID), Start: c.Head.Sequence.Start},
		Now: at.UTC().Round(0),
	}
	if c.Model != nil {
		call.Model = c.Model.Name
	}
	call.Headers = k.headers(c.Incoming)
	call.Metadata = k.metadata(c.Head.Metadata)
	if params := paramsOf(c); len(params) > 0 {
		call.Params = params
		for name, v := range params {
			if text, ok := v.(string); secret(strings.ToLower(name)) || (ok && k.text(text) == "" && text != "") {
				delete(params, name)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < MaxRecorded {
		r.ring = append(r.ring, recorded{script, call})
		return
	}
	r.ring[r.next] = recorded{script, call}
	r.next = (r.next + 1) % MaxRecorded
}

func (r *recorder) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ring)
}

// of gives the calls of a script, oldest first; "" for those of all. They are not to be written to.
func (r *recorder) of(script string) []cases.Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	var calls []cases.Call
	for i := range r.ring {
		one := &r.ring[(r.next+i)%len(r.ring)]
		if script == "" || one.script == script {
			calls = append(calls, one.call)
		}
	}
	return calls
}

// keeper copies texts until there is no more room.
type keeper struct{ room int }

func (k *keeper) text(s string) string {
	if len(s) > maxRecordText || len(s) > k.room {
		return ""
	}
	k.room -= len(s)
	return strings.Clone(s)
}

func (k *keeper) headers(in map[string][]string) map[string][]string {
	if len(in) == 0 {
		return nil
	}
	kept := make(map[string][]string)
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if len(kept) == maxEntries {
			break
		}
		if secret(name) || strings.HasSuffix(name, "-bin") || len(name) > maxRecordText {
			continue
		}
		for _, value := range in[name][:min(len(in[name]), maxEntries)] {
			if value = k.text(value); value != "" {
				key := strings.Clone(name)
				kept[key] = append(kept[key], value)
			}
		}
	}
	return kept
}

func (k *keeper) metadata(in map[string]string) map[string]string {
	if len(in) == 0 {
		return nil
	}
	kept := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if len(kept) == maxEntries {
			break
		}
		if secret(strings.ToLower(name)) || len(name) > maxRecordText {
			continue
		}
		if value := k.text(in[name]); value != "" {
			kept[strings.Clone(name)] = value
		}
	}
	return kept
}

// secret reports whether what stands under that name may let somebody in. Too much is better than too little: a
// recorded call is there to be looked at.
func secret(name string) bool {
	for _, word := range [...]string{
		"authorization", "cookie", "api-key", "api_key", "apikey", "token", "secret", "password", "passwd", "credential",
		"session", "signature", "client-cert", "x-goog-", "x-amz-security", "jwt", "assertion",
	} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// personal are headers that say where a person is rather than who; they are not exported.
var personal = []string{"x-forwarded-for", "forwarded", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"}

func newSalt() []byte {
	salt := make([]byte, 32)
	_, _ = rand.Read(salt) // it never fails
	return salt
}

// pseudonym is what stands for a user in what is exported: the same for the same user, as long as the process runs.
func (s *Store) pseudonym(user string) string {
	h := hmac.New(sha256.New, s.salt)
	h.Write([]byte(user))
	return "user-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// exported gives the recorded calls with users replaced, wherever their names stand.
func (s *Store) exported() []cases.Call {
	calls := s.calls.of("")
	for i := range calls {
		s.hide(&calls[i])
	}
	return calls
}

// named are the fields in which clients send whom a call is for.
var named = []string{"x-user-id", "user_id", "user-id", "userid", "user", "x-user", "uid"}

func (s *Store) hide(c *cases.Call) {
	user := c.User
	replace := func(name, value string) string {
		if slices.Contains(named, strings.ToLower(name)) || (user != "" && strings.Contains(value, user)) {
			if strings.TrimSpace(value) == user || user == "" || !strings.Contains(value, user) {
				return s.pseudonym(value)
			}
			return strings.ReplaceAll(value, user, s.pseudonym(user))
		}
		return value
	}
	if user != "" {
		c.User = s.pseudonym(user)
	}
	headers := make(map[string][]string, len(c.Headers))
	for name, values := range c.Headers {
		if slices.Contains(personal, name) {
			continue
		}
		for _, v := range values {
			headers[name] = append(headers[name], replace(name, v))
		}
	}
	c.Headers = headers
	if c.Metadata != nil {
		c.Metadata = maps.Clone(c.Metadata)
		for name, v := range c.Metadata {
			c.Metadata[name] = replace(name, v)
		}
	}
	if c.Params != nil {
		c.Params = maps.Clone(c.Params)
		for name, v := range c.Params {
			if text, ok := v.(string); ok {
				c.Params[name] = replace(name, text)
			}
		}
	}
}
