package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	maxProxies = 1000
	maxCallers = 10_000
	maxHashes  = 10_000 // of one caller
	maxText    = 2048   // bytes of an issuer, URL, audience or pattern
	maxClaim   = 128    // bytes of a claim's name
)

// trustedProxies compiles the field `trusted_proxies`.
func (c *compiler) trustedProxies(list []string) {
	if len(list) > maxProxies {
		c.check("trusted_proxies", fmt.Errorf("has %d entries; at most %d", len(list), maxProxies))
		return
	}
	for i, text := range list {
		at := fmt.Sprintf("trusted_proxies[%d]", i)
		if c.mistaken(at) {
			continue
		}
		p, err := parseNetwork(text)
		switch {
		case err != nil:
			c.wrong(at, "%s", err)
			continue
		case slices.Contains(c.cfg.Trusted, p):
			c.wrong(at, "%s is in the list already", clip(text))
		case p.Bits() == 0:
			c.note("%s is every address: any client may then say where it comes from", at)
		}
		c.cfg.Trusted = append(c.cfg.Trusted, p)
	}
}

// parseNetwork reads a network, 10.0.0.0/8, or a single address.
func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, errors.New("must be a network or an address, such as 10.0.0.0/8 or 2001:db8::7")
	case p.Addr().Is4In6():
		return p, errors.New("must be written as an IPv4 network, such as 10.0.0.0/8")
	case p != p.Masked():
		return p, fmt.Errorf("has bits behind its prefix; write %s, or the address alone", p.Masked())
	}
	return p, nil
}

// auth compiles the field `auth` and the callers.
func (c *compiler) auth(f *File) {
	stated := c.has("auth") && !c.mistaken("auth")
	c.cfg.AuthStated = stated
	if f.Auth == AuthRequired.String() || !stated && len(f.Callers) > 0 {
		c.cfg.Auth = AuthRequired
	}
	if c.cfg.Auth == AuthRequired && len(f.Callers) == 0 && !c.mistaken("callers") {
		c.wrong("auth", "is required, and no callers are declared, so nobody could call; declare callers, or write auth: none")
	}
	if len(f.Callers) > maxCallers {
		c.check("callers", fmt.Errorf("has %d entries; at most %d", len(f.Callers), maxCallers))
		return
	}
	seen := credentialsSeen{keys: make(map[KeyHash]string), tokens: make(map[string]int), issuers: make(map[string]int), sans: make(map[string]int)}
	first := make(map[string]int, len(f.Callers))
	for i := range f.Callers {
		cf, at := &f.Callers[i], callerAt(i)
		if c.mistaken(at) {
			continue
		}
		if j, ok := first[cf.Name]; ok && cf.Name != "" {
			c.check(at+".name", fmt.Errorf("%s is the name of callers[%d] already", clip(cf.Name), j))
		} else {
			first[cf.Name] = i
		}
		c.callerName(at+".name", cf.Name)
		c.cfg.Callers = append(c.cfg.Callers, Caller{
			Name: cf.Name, Keys: c.keys(at, cf, &seen), JWT: c.jwt(i, cf.JWT, f.Callers, &seen), MTLS: c.mtls(i, cf.MTLS, &seen),
			MayNameUsers: cf.MayNameUsers, Priority: named(cf.Priority, inference.PrioritySheddable, inference.PriorityDefault),
		})
		if !slices.ContainsFunc([]string{".keys", ".keys_file", ".keys_env", ".jwt", ".mtls"}, func(field string) bool { return c.has(at+field) || c.mistaken(at+field) }) {
			c.check(at, errors.New("has no way to prove who it is; give it keys (gateway key new makes one), keys_file, keys_env, jwt or mtls"))
		}
	}
}

func callerAt(i int) string { return fmt.Sprintf("callers[%d]", i) }

// credentialsSeen is what callers declared before may prove themselves with.
type credentialsSeen struct {
	keys                  map[KeyHash]string // where each stands
	tokens, issuers, sans map[string]int     // which caller has it
}

func (c *compiler) callerName(at, name string) {
	switch {
	case !c.has(at):
		c.check(at, errors.New("must be given"))
	case strings.EqualFold(name, inference.Anonymous):
		c.check(at, errors.New("is what calls without a user are called; give the caller another name"))
	default:
		c.check(at, checkName(name))
	}
}

// named gives the value of this name, of those up to last, else def.
func named[T interface {
	~uint8
	fmt.Stringer
}](name string, last, def T) T {
	for v := T(0); v <= last; v++ {
		if v.String() == name {
			return v
		}
	}
	return def
}

// keys collects the hashes of a caller's keys.
func (c *compiler) keys(at string, f *CallerFile, seen *credentialsSeen) []KeyHash {
	var all []KeyHash
	add := func(path, where, text string) {
		h, err := ParseKeyHash(text)
		owner, known := seen.keys[h]
		switch {
		case err != nil:
			c.hide(text)
			c.bad(c.at(path).value, path, "%s%s", where, err)
		case known && !strings.HasPrefix(owner, at+"."):
			c.bad(c.at(path).value, path, "%sis a key of %s too; give each caller keys of its own", where, parentCaller(owner))
		case known && strings.HasPrefix(owner, at+".keys[") && where == "":
			c.bad(c.at(path).value, path, "is in the list already")
		case !known:
			seen.keys[h] = path
			all = append(all, h)
		}
	}
	for i, text := range f.Keys {
		if path := fmt.Sprintf("%s.keys[%d]", at, i); !c.mistaken(path) {
			add(path, "", text)
		}
	}
	if path := at + ".keys"; c.has(path) && len(f.Keys) == 0 {
		c.check(path, errors.New("is empty; gateway key new makes a key, or remove it"))
	}
	if path := at + ".keys_file"; c.has(path) {
		if text, ok := c.side(path, f.KeysFile); ok {
			c.keysOf(path, text, add, clip(f.KeysFile))
		}
	}
	if path := at + ".keys_env"; c.has(path) && !c.mistaken(path) {
		c.keysFromEnv(path, f.KeysEnv, add)
	}
	if len(all) > maxHashes {
		c.check(at, fmt.Errorf("has %d keys; at most %d", len(all), maxHashes))
	}
	return all
}

// parentCaller is callers[2] of callers[2].keys[0].
func parentCaller(path string) string {
	owner, _, _ := strings.Cut(path, ".")
	return owner
}

// keysOf reads a file of hashes, one a line.
func (c *compiler) keysOf(path, text string, add func(path, where, text string), name string) {
	n, number := 0, 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\uFEFF")) {
		number++
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if n++; n > maxHashes {
			c.check(path, fmt.Errorf("%s has more than %d keys", name, maxHashes))
			return
		}
		add(path, fmt.Sprintf("line %d of %s ", number, name), line)
	}
	if n == 0 {
		c.check(path, fmt.Errorf("%s has no hashes in it; write one a line, or remove the caller to lock it out", name))
	}
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

func (c *compiler) keysFromEnv(path, name string, add func(path, where, text string)) {
	if !envName.MatchString(name) {
		c.wrong(path, "must be the name of an environment variable, such as BATCH_KEYS")
		return
	}
	words := strings.FieldsFunc(c.env(name), func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' || r == '\r' })
	if len(words) == 0 {
		c.wrong(path, "the environment has no %s, or it is empty; set it to the hash of a key", name)
	}
	for i, text := range words[:min(len(words), maxHashes)] {
		add(path, fmt.Sprintf("entry %d of %s ", i+1, name), text)
	}
}

// jwt compiles the section `jwt` of caller i; nil when there is none.
func (c *compiler) jwt(i int, f *JWTFile, all []CallerFile, seen *credentialsSeen) *JWT {
	at := callerAt(i) + ".jwt"
	if f == nil || c.mistaken(at) {
		return nil
	}
	j := &JWT{Issuer: f.Issuer, JWKS: f.JWKS, Audience: f.Audience, CallerClaim: f.Caller, UserClaim: f.User, RolesClaim: f.Roles}
	c.text(at+".issuer", f.Issuer, "must be given: what tokens have in iss, such as https://id.example.com")
	c.text(at+".audience", f.Audience, "must be given: what tokens for this gateway have in aud; without it, tokens made for others would be good here")
	if c.text(at+".jwks", f.JWKS, "must be given: the URL of the issuer's keys, or a file with them") {
		j.JWKS = c.jwks(at+".jwks", f.JWKS)
	}
	for _, claim := range []struct{ field, name string }{{".caller", f.Caller}, {".user", f.User}, {".roles", f.Roles}} {
		if c.has(at+claim.field) && (claim.name == "" || len(claim.name) > maxClaim || strings.ContainsFunc(claim.name, notPrintable)) {
			c.check(at+claim.field, errors.New("must be the name of a claim, such as sub"))
		}
	}
	if j.Issuer == "" || j.Audience == "" || j.JWKS == "" {
		return j
	}
	token := j.Issuer + "\x00" + j.Audience
	if k, ok := seen.tokens[token]; !ok {
		seen.tokens[token] = i
	} else if other := all[k].JWT.Caller; other == "" || other != f.Caller {
		c.check(at, fmt.Errorf("takes the same tokens as callers[%d], of this issuer for this audience; give both the same claim in caller, which then has the caller's name", k))
	}
	if k, ok := seen.issuers[j.Issuer]; !ok {
		seen.issuers[j.Issuer] = i
	} else if all[k].JWT.JWKS != f.JWKS {
		c.check(at+".jwks", fmt.Errorf("must be the same as in callers[%d]: an issuer has one set of keys", k))
	}
	return j
}

func notPrintable(r rune) bool { return r <= ' ' || r > '~' }

// text checks a text that must be there; missing says what it is.
func (c *compiler) text(at, value, missing string) bool {
	switch {
	case c.mistaken(at):
	case !c.has(at) || value == "":
		c.check(at, errors.New(missing))
	case len(value) > maxText || strings.TrimSpace(value) != value || strings.ContainsFunc(value, isControl):
		c.check(at, fmt.Errorf("must be at most %d bytes, without spaces around it", maxText))
	default:
		return true
	}
	return false
}

// jwks checks where an issuer's keys are: a URL that nobody on the way can change, or a file.
func (c *compiler) jwks(at, where string) string {
	if !strings.Contains(where, "://") {
		where = c.resolve(where)
		loaded := c.before != nil && slices.ContainsFunc(c.before.Callers, func(o Caller) bool { return o.JWT != nil && o.JWT.JWKS == where })
		c.jwksFile(at, where, loaded)
		return where
	}
	u, err := url.Parse(where)
	switch {
	case err != nil || !isURL(where) || !validHost(u.Hostname()):
		c.check(at, errors.New("must be a URL such as https://id.example.com/jwks.json, or a file"))
	case u.User != nil:
		c.check(at, errors.New("must not have a password in it"))
	case u.Fragment != "":
		c.check(at, errors.New("must not have a # in it"))
	case u.Scheme == "http" && !onLoopback(u.Hostname()):
		c.check(at, errors.New("must be https: whoever can change what http answers could make tokens; http is for this machine only"))
	}
	return where
}

func onLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

func (c *compiler) jwksFile(at, name string, loaded bool) {
	text, err := readFile(name)
	if err != nil {
		c.trouble(at, loaded, "%s; mount the file there, or give the URL of the issuer's keys", cannotRead(name, err))
		return
	}
	var keys struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(text, &keys) != nil || len(keys.Keys) == 0 {
		c.trouble(at, loaded, `%s is no set of keys: it must be JSON such as {"keys": [{"kty": ...}]}`, clip(name))
	}
}

// mtls compiles the section `mtls` of caller i; nil when there is none.
func (c *compiler) mtls(i int, f *MTLSFile, seen *credentialsSeen) *MTLS {
	at := callerAt(i) + ".mtls"
	if f == nil || c.mistaken(at) {
		return nil
	}
	if c.cfg.Listen.TLS == nil || c.cfg.Listen.TLS.ClientCA == "" && !c.mistaken("listen.tls.client_ca") {
		c.check(at, errors.New("needs listen.tls.client_ca, the authorities whose client certificates are accepted; without it no client is asked for one"))
	}
	if !c.text(at+".san", f.SAN, "must be given: the subject alternative name, such as spiffe://prod/ns/*/sa/*") {
		return nil
	}
	if k, ok := seen.sans[f.SAN]; ok {
		c.check(at+".san", fmt.Errorf("is that of callers[%d] too; one certificate is one caller", k))
	} else {
		seen.sans[f.SAN] = i
	}
	return &MTLS{SAN: f.SAN}
}

// AccessLoosened reports whether next would grant infer and metadata of everything to all callers where old had rules, and
// its file does not have the section at all: rules that have gone missing must not open models. A reload that does is refused.
func AccessLoosened(old, next *Config) bool {
	return len(old.Access.Rules) > 0 && len(next.Access.Rules) == 0 && !next.Access.Stated && next.Auth == AuthRequired
}

// AuthLoosened reports whether next would let everybody in where old asked who they are, and its file does not say
// auth: none itself: a list of callers that has gone missing must not open the door. A reload that does is refused.
func AuthLoosened(old, next *Config) bool {
	return old.Auth == AuthRequired && next.Auth == AuthNone && !next.AuthStated
}
