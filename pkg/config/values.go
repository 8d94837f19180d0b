package config

import (
	"crypto/sha256"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// ListenTLS names the files of TLS toward clients, PEM.
type ListenTLS struct {
	Cert, Key string
	ClientCA  string // authorities of client certificates; "" asks for none
}

// Auth says whether callers must prove who they are.
type Auth uint8

// The ways to treat a caller that proves nothing.
const (
	AuthNone     Auth = iota // a trusted network: it is believed
	AuthRequired             // it is refused
)

func (a Auth) String() string { return [...]string{"none", "required"}[a] }

// Caller is a declared client and the ways in which it may prove who it is: at least one of Keys, JWT and MTLS.
type Caller struct {
	Name         string
	Keys         []KeyHash // from the file, keys_file and keys_env, no doubles
	JWT          *JWT
	MTLS         *MTLS
	MayNameUsers bool
	Priority     inference.Priority
}

// KeyHash is the SHA-256 of a key's text.
type KeyHash [sha256.Size]byte

// JWT says which tokens are a caller's: those of Issuer for Audience and, where CallerClaim is set, with the caller's name
// in that claim. No two callers can take the same token.
type JWT struct {
	Issuer      string // iss
	JWKS        string // https://..., http:// on loopback only, or a file's path; see JWKSFile
	Audience    string // aud
	CallerClaim string // "": every such token is this caller's
	UserClaim   string // the claim with the user's name; "": none
	RolesClaim  string // the claim with a text or a list of texts; "": none
}

// JWKSFile gives the path of the keys' file, "" when they are at a URL.
func (j *JWT) JWKSFile() string {
	if isURL(j.JWKS) {
		return ""
	}
	return j.JWKS
}

// MTLS says which certificates are a caller's. Where several callers match, the first in the file is meant.
type MTLS struct {
	// SAN is a subject alternative name, in which * is any text within one part: a URI's parts end at slashes, those of any
	// other name at dots.
	SAN string
}

// Access says which caller may do what. Without rules a caller has infer and metadata of every model; with rules, what
// they grant, and infer and metadata of nothing else.
type Access struct {
	HideForbidden bool // a model the caller may not see is not found
	Stated        bool // the file has the section, with rules or without
	Rules         []AccessRule
}

// AccessRule grants kinds of calls.
type AccessRule struct {
	Callers []string         // declared names; "*" in the file is all of them
	Models  []string         // patterns, see MatchModel; none in a rule that allows only kinds without a model
	Allow   []inference.Kind // at least one, no doubles
}

// Redis is how to reach Redis.
type Redis struct {
	Addresses []string // host:port each: one server; or sentinels; or some of a cluster. Or one unix:///path
	Mode      string   // RedisStandalone, RedisSentinel or RedisCluster
	Master    string   // the name that sentinels know; "" in other modes
	Prefix    string   // of every key, without a colon at its end
	User      string   // "": the default user
	Password  string   // from password_file; may change on a reload
	TLS       *ClientTLS
	Timeout   time.Duration // of one round trip, 1ms to 1s
	WhenDown  inference.WhenDown
}

// Modes of Redis.
const (
	RedisStandalone = "standalone"
	RedisSentinel   = "sentinel"
	RedisCluster    = "cluster"
)

// ClientTLS is TLS toward an upstream or Redis.
type ClientTLS struct {
	CA         string // CASystem, or a file of authorities, PEM
	Cert, Key  string // files of our own certificate, PEM; both or none
	ServerName string // expected in place of the host; "": the host
}

// CASystem stands for the authorities that the system trusts.
const CASystem = "system"
