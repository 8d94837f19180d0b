package callers

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestATokenIsItsCallersAndNamesTheUser(t *testing.T) {
	i := newIssuer(t, rsaPair(), ecPair(), edwardsPair())
	c := with(t, batch(i.URL), Entry{Name: "web", JWT: &JWT{Issuer: "https://id", JWKS: i.URL, Audience: "models", Caller: "azp"}})
	for _, p := range []pair{rsaPair(), ecPair(), edwardsPair()} {
		claims := goodClaims()
		claims["realm"] = map[string]any{"roles": []any{"reader", 7, "writer"}}
		raw := sign(t, p, claims)
		for range 2 { // verified, and remembered
			who := wantCaller(t, c, bearing(raw), "batch", "ann")
			if !slices.Equal(who.Roles, []string{"reader", "writer"}) || who.Priority != inference.PrioritySheddable {
				t.Errorf("got %+v", who)
			}
		}
	}
	claims := goodClaims()
	claims["azp"], claims["aud"] = "web", []string{"other", "models"}
	wantCaller(t, c, bearing(sign(t, ecPair(), claims)), "web", "") // it has no claim for users
	claims = goodClaims()
	claims["sub"], claims["realm"] = 4711, map[string]any{"roles": "one two"}
	if who := wantCaller(t, c, bearing(sign(t, ecPair(), claims)), "batch", "4711"); !slices.Equal(who.Roles, []string{"one", "two"}) {
		t.Errorf("roles %v", who.Roles)
	}
	delete(claims, "sub")
	wantCaller(t, c, bearing(sign(t, ecPair(), claims)), "batch", "")
	unnamed := sign(t, edwardsPair(), goodClaims(), func(t *jwt.Token) { delete(t.Header, "kid") })
	wantCaller(t, c, bearing(unnamed), "batch", "ann")
	if i.reads.Load() != 1 {
		t.Errorf("the keys were read %d times", i.reads.Load())
	}
}

func TestAnIssuerMayBeTakenAtItsWord(t *testing.T) {
	i := newIssuer(t, ecPair())
	e := batch(i.URL)
	e.JWT.Caller = ""
	claims := goodClaims()
	delete(claims, "azp")
	wantCaller(t, with(t, e), bearing(sign(t, ecPair(), claims)), "batch", "ann")
}

func TestEveryBadTokenIsRefusedWithWhatToDo(t *testing.T) {
	r := rsaPair()
	i := newIssuer(t, r)
	c := with(t, batch(i.URL), Entry{Name: "key", Keys: []Hash{HashKey("k")}})
	good := sign(t, r, goodClaims())
	wantCaller(t, c, bearing(good), "batch", "ann")
	public, err := x509.MarshalPKIXPublicKey(r.private.Public())
	if err != nil {
		t.Fatal(err)
	}
	changed := func(change func(jwt.MapClaims)) string {
		claims := goodClaims()
		change(claims)
		return sign(t, r, claims)
	}
	symmetric := func(method jwt.SigningMethod, secret any) string {
		token := jwt.NewWithClaims(method, goodClaims())
		token.Header["kid"] = r.id
		raw, err := token.SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	part := strings.Split(good, ".")
	encode := base64.RawURLEncoding.EncodeToString
	for name, w := range map[string]struct{ token, words string }{
		"expired":                     {changed(func(m jwt.MapClaims) { m["exp"] = time.Now().Add(-31 * time.Second).Unix() }), "has expired"},
		"without exp":                 {changed(func(m jwt.MapClaims) { delete(m, "exp") }), "nowhere when it expires"},
		"exp of another type":         {changed(func(m jwt.MapClaims) { m["exp"] = "tomorrow" }), "not of the types"},
		"too early":                   {changed(func(m jwt.MapClaims) { m["nbf"] = time.Now().Add(45 * time.Second).Unix() }), "not valid yet"},
		"wrong audience":              {changed(func(m jwt.MapClaims) { m["aud"] = "models2" }), "another audience"},
		"no audience":                 {changed(func(m jwt.MapClaims) { delete(m, "aud") }), "another audience"},
		"wrong issuer":                {changed(func(m jwt.MapClaims) { m["iss"] = "https://id/" }), "(iss)"},
		"no issuer":                   {changed(func(m jwt.MapClaims) { delete(m, "iss") }), "(iss)"},
		"issuer of another type":      {changed(func(m jwt.MapClaims) { m["iss"] = []string{"https://id"} }), "(iss)"},
		"another caller":              {changed(func(m jwt.MapClaims) { m["azp"] = "somebody" }), "no caller of the name"},
		"a caller without tokens":     {changed(func(m jwt.MapClaims) { m["azp"] = "key" }), "no caller of the name"},
		"no caller":                   {changed(func(m jwt.MapClaims) { delete(m, "azp") }), "no caller of the name"},
		"a list of callers":           {changed(func(m jwt.MapClaims) { m["azp"] = []string{"batch"} }), "no caller of the name"},
		"a huge user":                 {changed(func(m jwt.MapClaims) { m["sub"] = strings.Repeat("u", maxUser+1) }), "more than 256 bytes"},
		"huge":                        {changed(func(m jwt.MapClaims) { m["x"] = strings.Repeat("u", maxCredential) }), "more than 8192 bytes"},
		"unknown kid":                 {sign(t, otherRSA(), goodClaims()), "does not publish"},
		"another key under the kid":   {sign(t, otherRSA(), goodClaims(), func(t *jwt.Token) { t.Header["kid"] = r.id }), "not that of its issuer"},
		"another algorithm":           {sign(t, pair{r.id, jwt.SigningMethodPS256, r.private}, goodClaims()), "not that of its issuer"},
		"EC under an RSA kid":         {sign(t, pair{r.id, jwt.SigningMethodES256, ecPair().private}, goodClaims()), "not that of its issuer"},
		"crit":                        {sign(t, r, goodClaims(), func(t *jwt.Token) { t.Header["crit"] = []string{"b64"} }), "(crit)"},
		"alg none":                    {symmetric(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType), "algorithm"},
		"alg None":                    {encode([]byte(`{"alg":"None","kid":"r1"}`)) + "." + part[1] + ".", "algorithm"},
		"no alg":                      {encode([]byte(`{"kid":"r1"}`)) + "." + part[1] + "." + part[2], "algorithm"},
		"HS256, public key as secret": {symmetric(jwt.SigningMethodHS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})), "algorithm"},
		"HS512, public key as secret": {symmetric(jwt.SigningMethodHS512, public), "algorithm"},
		"without signature":           {part[0] + "." + part[1] + ".", "not that of its issuer"},
		"another's claims":            {part[0] + "." + strings.Split(changed(func(m jwt.MapClaims) { m["sub"] = "bob" }), ".")[1] + "." + part[2], "not that of its issuer"},
		"garbled claims":              {part[0] + ".%%%." + part[2], "not a JWT"},
		"garbled header":              {"e30x." + part[1] + "." + part[2], "not a JWT"},
		"nothing at all":              {"..", "not a JWT"},
		"a claim that is no object":   {part[0] + "." + encode([]byte(`[1]`)) + "." + part[2], "not a JWT"},
	} {
		t.Run(name, func(t *testing.T) { wantRefused(t, c, bearing(w.token), fault.AuthInvalid, w.words) })
	}
	// Nor does a good token open the door that is for keys.
	wantRefused(t, c, sends("x-api-key", good), fault.AuthInvalid, "not one of any caller")
	for _, ok := range []string{
		changed(func(m jwt.MapClaims) { m["exp"] = time.Now().Add(-20 * time.Second).Unix() }),
		changed(func(m jwt.MapClaims) { m["nbf"] = time.Now().Add(20 * time.Second).Unix() }),
	} {
		wantCaller(t, c, bearing(ok), "batch", "ann") // clocks differ
	}
}

func TestOfCallersWithOneIssuerTheClosestRefusalIsTold(t *testing.T) {
	i := newIssuer(t, ecPair())
	far := Entry{Name: "far", JWT: &JWT{Issuer: "https://id", JWKS: i.URL, Audience: "elsewhere"}}
	c := with(t, far, batch(i.URL))
	claims := goodClaims()
	claims["azp"] = "nobody"
	wantRefused(t, c, bearing(sign(t, ecPair(), claims)), fault.AuthInvalid, "no caller of the name")
	wantCaller(t, c, bearing(sign(t, ecPair(), goodClaims())), "batch", "ann")
}

func TestAReplacedSigningKeyIsFoundByTheFirstTokenThatNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, fresh := ecPair(), otherRSA()
		f := &fetcher{body: jwks(t, old)}
		c := New(Options{Client: f.client()})
		defer c.Close()
		if err := c.Set(true, []Entry{batch("https://id/jwks")}); err != nil {
			t.Fatal(err)
		}
		first, second := sign(t, old, goodClaims()), ""
		wantCaller(t, c, bearing(first), "batch", "ann")
		f.set(jwks(t, old, fresh))
		second = sign(t, fresh, goodClaims())
		wantRefused(t, c, bearing(second), fault.AuthInvalid, "does not publish") // they were read a moment ago
		pass(askEvery)
		for range 3 {
			wantCaller(t, c, bearing(second), "batch", "ann")
		}
		if n := f.count(); n != 2 {
			t.Errorf("the keys were read %d times", n)
		}
		f.set(jwks(t, fresh)) // the old one is taken back
		pass(refreshEvery)
		synctest.Wait()
		wantRefused(t, c, bearing(first), fault.AuthInvalid, "does not publish")
		wantCaller(t, c, bearing(second), "batch", "ann")
	})
}

func TestUnknownKeysDoNotHammerTheIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fetcher{body: jwks(t, ecPair())}
		c := New(Options{Client: f.client()})
		defer c.Close()
		if err := c.Set(true, []Entry{batch("https://id/jwks")}); err != nil {
			t.Fatal(err)
		}
		stranger := sign(t, otherRSA(), goodClaims())
		for range 60 {
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() { wantRefused(t, c, bearing(stranger), fault.AuthInvalid, "does not publish") })
			}
			all.Wait()
			pass(time.Second)
		}
		if n := f.count(); n > 13 {
			t.Errorf("600 tokens within a minute had the keys read %d times", n)
		}
	})
}

func TestAnOutageOfTheIssuerIsNotFelt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fetcher{}
		c := New(Options{Client: f.client()})
		defer c.Close()
		if err := c.Set(true, []Entry{batch("https://id/jwks")}); err != nil {
			t.Fatal(err)
		}
		token := func() *inference.Call { return bearing(sign(t, ecPair(), goodClaims())) }
		wantRefused(t, c, token(), fault.AuthUnavailable, "cannot be read at present")
		f.set(jwks(t, ecPair()))
		pass(retryEvery)
		synctest.Wait()
		wantCaller(t, c, token(), "batch", "ann")
		for _, trouble := range [][]byte{nil, []byte("<html>"), []byte(`{"keys":[]}`), []byte(`{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"e1"}]}`), make([]byte, maxJWKS+1)} {
			f.set(trouble)
			pass(time.Hour)
			synctest.Wait()
			wantCaller(t, c, token(), "batch", "ann")
			// Whether a key that nobody knows is good cannot be told now.
			wantRefused(t, c, bearing(sign(t, otherRSA(), goodClaims())), fault.AuthUnavailable, "cannot be read at present")
		}
		// Keys that stay over a reload need not be read again.
		if err := c.Set(true, []Entry{{Name: "k", Keys: []Hash{HashKey("k")}}, batch("https://id/jwks")}); err != nil {
			t.Fatal(err)
		}
		wantCaller(t, c, token(), "batch", "ann")
	})
}

func TestACallWaitsForTheFirstKeysButNoLongerThanItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fetcher{body: jwks(t, ecPair()), delay: 2 * time.Second}
		c := New(Options{Client: f.client()})
		defer c.Close()
		if err := c.Set(true, []Entry{batch("https://id/jwks")}); err != nil {
			t.Fatal(err)
		}
		raw := sign(t, ecPair(), goodClaims())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := c.Authenticate(ctx, bearing(raw)); fault.Of(err).Kind != fault.Deadline {
			t.Errorf("got %v", err)
		}
		wantCaller(t, c, bearing(raw), "batch", "ann")
	})
}

func TestARememberedTokenIsForgottenWhenItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fetcher{body: jwks(t, ecPair())}
		c := New(Options{Client: f.client()})
		defer c.Close()
		if err := c.Set(true, []Entry{batch("https://id/jwks")}); err != nil {
			t.Fatal(err)
		}
		claims := goodClaims()
		claims["exp"] = time.Now().Add(time.Minute).Unix()
		raw := sign(t, ecPair(), claims)
		wantCaller(t, c, bearing(raw), "batch", "ann")
		pass(59 * time.Second)
		wantCaller(t, c, bearing(raw), "batch", "ann")
		pass(32 * time.Second)
		wantRefused(t, c, bearing(raw), fault.AuthInvalid, "has expired")
	})
}

func TestKeysInAFileAreReadAgainWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "jwks.json")
		put := func(b []byte) {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			pass(5 * time.Second)
			synctest.Wait()
		}
		var changes []string
		c := New(Options{Changed: func(where, old, next string) { changes = append(changes, where, old, next) }})
		defer c.Close()
		put(jwks(t, ecPair()))
		if err := c.Set(true, []Entry{batch(path)}); err != nil {
			t.Fatal(err)
		}
		old, fresh := sign(t, ecPair(), goodClaims()), sign(t, edwardsPair(), goodClaims())
		wantCaller(t, c, bearing(old), "batch", "ann")
		put([]byte("half a fi"))
		wantCaller(t, c, bearing(old), "batch", "ann")
		put(jwks(t, edwardsPair()))
		wantCaller(t, c, bearing(fresh), "batch", "ann")
		wantRefused(t, c, bearing(old), fault.AuthInvalid, "does not publish")
		if len(changes) != 3 || changes[0] != path || len(changes[1]) != 64 || len(changes[2]) != 64 || changes[1] == changes[2] {
			t.Errorf("for the record: %q", changes)
		}
	})
}

func TestTheCacheKeepsToItsSize(t *testing.T) {
	c := newCache()
	keys := &keySet{}
	src := &source{}
	src.keys.Store(keys)
	now := time.Now()
	kept := 0
	for i := range 100_000 {
		raw := strconv.Itoa(i)
		c.put(raw, &verified{until: now.Add(time.Minute), source: src, keys: keys})
		if c.get(raw, now) == nil {
			t.Fatal("what was put last is not there")
		}
	}
	for n := range c.sets {
		for w := range c.sets[n] {
			if c.sets[n][w].Load() != nil {
				kept++
			}
		}
	}
	if kept < cacheSets*cacheWays*99/100 {
		t.Errorf("%d kept", kept)
	}
	huge := strings.Repeat("x", cacheMost+1)
	if c.put(huge, &verified{until: now.Add(time.Minute), source: src, keys: keys}); c.get(huge, now) != nil {
		t.Error("a huge token is kept")
	}
}

func FuzzTokens(f *testing.F) {
	f.Add("eyJhbGciOiJFUzI1NiIsImtpZCI6ImUxIn0", `{"iss":"https://id","aud":"models","exp":1}`)
	f.Add("eyJhbGciOiJub25lIn0", `{"iss":"https://id","aud":["models"],"exp":1e300,"azp":"batch"}`)
	f.Add("e30", `{}`)
	path := filepath.Join(f.TempDir(), "jwks.json")
	if err := os.WriteFile(path, jwks(f, ecPair()), 0o600); err != nil {
		f.Fatal(err)
	}
	c := with(f, batch(path))
	f.Fuzz(func(t *testing.T, header, claims string) {
		raw := header + "." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2lnbmF0dXJl"
		if who, _, err := c.Authenticate(t.Context(), bearing(raw)); who != nil || err == nil {
			t.Fatalf("%s opens the door", raw)
		}
	})
}

func BenchmarkAuthenticateRememberedToken(b *testing.B) {
	i := newIssuer(b, rsaPair())
	c := with(b, batch(i.URL))
	call := bearing(sign(b, rsaPair(), goodClaims()))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := c.Authenticate(b.Context(), call); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAuthenticateFreshToken(b *testing.B) {
	i := newIssuer(b, rsaPair())
	c := with(b, batch(i.URL))
	raw := sign(b, rsaPair(), goodClaims())
	wantCaller(b, c, bearing(raw), "batch", "ann")
	s := c.current.Load()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.verify(b.Context(), raw); err != nil {
			b.Fatal(err)
		}
	}
}
