package callers

import (
	"context"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// maxCredential is the most bytes a key or token may have; longer ones are not even hashed.
const maxCredential = 8 << 10

// The refusals that are the same for all. None has anything in it that was sent.
var (
	errKey       = fault.New(fault.AuthInvalid, "the key is not one of any caller; check that it was copied whole and has not been replaced since")
	errKeyEmpty  = fault.New(fault.AuthInvalid, "x-api-key is there and empty; send the key, or leave the header out")
	errTwoKeys   = fault.New(fault.AuthInvalid, "x-api-key is there more than once; send one key")
	errTwoAuths  = fault.New(fault.AuthInvalid, "authorization is there more than once; send one credential")
	errScheme    = fault.New(fault.AuthInvalid, "authorization is not of the form: Bearer, a space, and the key or token")
	errHuge      = fault.New(fault.AuthInvalid, "the credential has more than %d bytes; leave out claims that the gateway does not need", maxCredential)
	errStranger  = fault.New(fault.AuthInvalid, "the client certificate is not one of any caller: none of its names is declared; use another certificate, or send a key or token")
	errNoTokens  = fault.New(fault.AuthInvalid, "no caller here has tokens; send a key as x-api-key or as authorization: Bearer")
	errNoAnchors = fault.New(fault.AuthInvalid, "the client certificate was not verified, since the gateway has no listen.tls.client_ca; send a key or token")
)

// Authenticate finds out who sends c, by c.Incoming and c.TLS, and, where a token says so, for which user; user is ""
// when it does not. The error is a fault that says what to do. Where no credential is required the caller is nil.
//
// x-api-key goes before authorization, and both before the certificate.
func (c *Callers) Authenticate(ctx context.Context, call *inference.Call) (caller *inference.Caller, user string, err error) {
	s := c.current.Load()
	if !s.required {
		return nil, "", nil
	}
	if sent, ok := call.Incoming["x-api-key"]; ok {
		caller, err = s.byKey(sent)
		return caller, "", err
	}
	if sent, ok := call.Incoming["authorization"]; ok {
		return s.byBearer(ctx, sent, call.Start)
	}
	if call.TLS != nil && len(call.TLS.PeerCertificates) > 0 {
		if len(call.TLS.VerifiedChains) == 0 {
			return nil, "", errNoAnchors
		}
		if caller = s.byCertificate(call.TLS.PeerCertificates[0]); caller == nil {
			return nil, "", errStranger
		}
		return caller, "", nil
	}
	return nil, "", s.missing
}

// ByKey finds the caller whose key it is, for ports that take keys in ways of their own; nil when it is nobody's. It
// answers whether or not credentials are required.
func (c *Callers) ByKey(key string) *inference.Caller {
	if key == "" || len(key) > maxCredential {
		return nil
	}
	return c.current.Load().keys[HashKey(key)]
}

func (s *snapshot) byKey(sent []string) (*inference.Caller, error) {
	switch {
	case len(sent) > 1:
		return nil, errTwoKeys
	case len(sent) == 0 || sent[0] == "":
		return nil, errKeyEmpty
	case len(sent[0]) > maxCredential:
		return nil, errHuge
	}
	// What is compared is the hash, so the time it takes tells nothing about keys.
	if who := s.keys[HashKey(sent[0])]; who != nil {
		return who, nil
	}
	return nil, errKey
}

func (s *snapshot) byBearer(ctx context.Context, sent []string, now time.Time) (*inference.Caller, string, error) {
	if len(sent) > 1 {
		return nil, "", errTwoAuths
	}
	credential, ok := bearer(sent)
	switch {
	case !ok:
		return nil, "", errScheme
	case len(credential) > maxCredential:
		return nil, "", errHuge
	case strings.Count(credential, ".") == 2: // no key has dots
		if s.verified == nil {
			return nil, "", errNoTokens
		}
		if now.IsZero() {
			now = time.Now()
		}
		return s.byToken(ctx, credential, now)
	}
	if who := s.keys[HashKey(credential)]; who != nil {
		return who, "", nil
	}
	if strings.ContainsAny(credential, " \t,") { // only now, since a good one has none of them
		return nil, "", errScheme
	}
	return nil, "", errKey
}

// bearer takes the credential out of an authorization header.
func bearer(sent []string) (string, bool) {
	const scheme = "bearer"
	if len(sent) == 0 || len(sent[0]) <= len(scheme) || !strings.EqualFold(sent[0][:len(scheme)], scheme) || sent[0][len(scheme)] != ' ' {
		return "", false
	}
	credential := strings.Trim(sent[0][len(scheme):], " ")
	return credential, credential != ""
}
