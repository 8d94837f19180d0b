package callers

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	leeway   = 30 * time.Second // for clocks that differ
	maxUser  = 256              // bytes
	maxRoles = 64
)

// algorithms that are taken: asymmetric ones alone. With the others whoever can verify can also sign, and a public
// key would do as their secret.
var algorithms = map[string]bool{
	"RS256": true, "RS384": true, "RS512": true, "PS256": true, "PS384": true, "PS512": true,
	"ES256": true, "ES384": true, "ES512": true, "EdDSA": true,
}

// tokens are the tokens of one caller.
type tokens struct {
	JWT
	caller *inference.Caller
	source *source
	valid  *jwt.Validator
}

// The refusals of tokens.
var (
	errGarbled  = fault.New(fault.AuthInvalid, "the token is not a JWT; check that it was copied whole")
	errAlg      = fault.New(fault.AuthInvalid, "the token is not signed with an algorithm that is taken here: RS, PS or ES with 256, 384 or 512 bits, or EdDSA")
	errCritical = fault.New(fault.AuthInvalid, "the token has critical header fields (crit) that this gateway does not know; leave them out")
	errIssuer   = fault.New(fault.AuthInvalid, "the token is of an issuer (iss) that is not declared here; get it from the issuer that the operator of the gateway names")
	errUnknown  = fault.New(fault.AuthInvalid, "the token is signed with a key (kid) that its issuer does not publish; get a new one")
	errForged   = fault.New(fault.AuthInvalid, "the token's signature is not that of its issuer; get a new one")
	errExpired  = fault.New(fault.AuthInvalid, "the token has expired (exp); get a new one")
	errNoExpiry = fault.New(fault.AuthInvalid, "the token says nowhere when it expires (exp), and such tokens are not taken")
	errTooEarly = fault.New(fault.AuthInvalid, "the token is not valid yet (nbf); wait, or set the clocks")
	errAudience = fault.New(fault.AuthInvalid, "the token was made for another audience (aud); ask its issuer for one for this gateway")
	errClaims   = fault.New(fault.AuthInvalid, "the claims of the token are not of the types that they must have")
	errNobody   = fault.New(fault.AuthInvalid, "the token is good, but no caller of the name in it is declared here")
	errLongUser = fault.New(fault.AuthInvalid, "the user in the token has more than %d bytes", maxUser)
	errOutage   = &fault.Fault{Kind: fault.AuthUnavailable, Msg: "the keys of the token's issuer cannot be read at present, so the token cannot be judged; try again shortly"}
)

func validator(audience string) *jwt.Validator {
	return jwt.NewValidator(jwt.WithAudience(audience), jwt.WithExpirationRequired(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(time.Now))
}

var parser = jwt.NewParser(jwt.WithJSONNumber(), jwt.WithStrictDecoding())

// byToken finds the caller that a token is of.
func (s *snapshot) byToken(ctx context.Context, raw string, now time.Time) (*inference.Caller, string, error) {
	if v := s.verified.get(raw, now); v != nil {
		return v.caller, v.user, nil
	}
	v, err := s.verify(ctx, raw)
	if err != nil {
		return nil, "", err
	}
	if now.Before(v.until) {
		s.verified.put(raw, v)
	}
	return v.caller, v.user, nil
}

// verify looks at all of a token. Where several callers have the same issuer, the first one that it fits has it, and when it
// fits none, the refusal is that of the one that it came closest to.
func (s *snapshot) verify(ctx context.Context, raw string) (*verified, error) {
	claims := jwt.MapClaims{}
	token, _, err := parser.ParseUnverified(raw, claims)
	if err != nil {
		if errors.Is(err, jwt.ErrTokenUnverifiable) { // an algorithm that nobody knows
			return nil, errAlg
		}
		return nil, errGarbled
	}
	if alg, _ := token.Header["alg"].(string); !algorithms[alg] {
		return nil, errAlg
	}
	if _, ok := token.Header["crit"]; ok {
		return nil, errCritical
	}
	issuer, _ := claims["iss"].(string)
	candidates := s.issuers[issuer]
	if issuer == "" || len(candidates) == 0 {
		return nil, errIssuer
	}
	var refusal error
	closest := -1
	signed := make(map[*source]signature, 1)
	for _, t := range candidates {
		sig, ok := signed[t.source]
		if !ok {
			sig = t.source.verify(ctx, token, raw[:strings.LastIndexByte(raw, '.')])
			signed[t.source] = sig
		}
		v, how, err := t.judge(claims, sig)
		if err == nil {
			return v, nil
		}
		if how > closest {
			closest, refusal = how, err
		}
	}
	return nil, refusal
}

// judge decides whether a token whose signature has been looked at is one of t's. how says how far it came.
func (t *tokens) judge(claims jwt.MapClaims, sig signature) (v *verified, how int, err error) {
	if sig.err != nil {
		return nil, 0, sig.err
	}
	if err := t.valid.Validate(claims); err != nil {
		return nil, 1, invalid(err)
	}
	if t.Caller != "" {
		if name, _ := claim(claims, t.Caller).(string); name != t.caller.Name {
			return nil, 2, errNobody
		}
	}
	v = &verified{caller: t.caller, source: t.source, keys: sig.keys, until: time.Now().Add(cacheFor)}
	if exp, err := claims.GetExpirationTime(); err == nil && exp != nil && exp.Before(v.until) {
		v.until = exp.Time
	}
	if t.User != "" {
		if v.user = text(claim(claims, t.User)); len(v.user) > maxUser {
			return nil, 3, errLongUser
		}
	}
	if t.Roles != "" {
		if roles := roles(claim(claims, t.Roles)); len(roles) > 0 {
			who := *t.caller
			who.Roles = roles
			v.caller = &who
		}
	}
	return v, 3, nil
}

// invalid tells what is wrong with claims.
func invalid(err error) error {
	switch {
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		if strings.Contains(err.Error(), "exp") {
			return errNoExpiry
		}
		return errAudience
	case errors.Is(err, jwt.ErrTokenExpired):
		return errExpired
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return errTooEarly
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return errAudience
	}
	return errClaims
}

// claim finds a claim by its name, or by the names on the way to it.
func claim(claims map[string]any, name string) any {
	if v, ok := claims[name]; ok {
		return v
	}
	first, rest, ok := strings.Cut(name, ".")
	if !ok {
		return nil
	}
	inner, ok := claims[first].(map[string]any)
	if !ok {
		return nil
	}
	return claim(inner, rest)
}

// text gives a claim that is a text or a number; "" for all others.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}

func roles(v any) []string {
	var list []string
	switch v := v.(type) {
	case string:
		list = strings.Fields(v)
	case []any:
		for _, r := range v {
			if r, ok := r.(string); ok && r != "" {
				list = append(list, r)
			}
		}
	}
	return list[:min(len(list), maxRoles)]
}
