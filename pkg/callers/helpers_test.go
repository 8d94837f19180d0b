package callers

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a private key and how its issuer publishes the public one.
type pair struct {
	id      string
	method  jwt.SigningMethod
	private crypto.Signer
}

var (
	rsaPair     = sync.OnceValue(func() pair { return newPair("r1", jwt.SigningMethodRS256) })
	otherRSA    = sync.OnceValue(func() pair { return newPair("r2", jwt.SigningMethodRS256) })
	ecPair      = sync.OnceValue(func() pair { return newPair("e1", jwt.SigningMethodES256) })
	edwardsPair = sync.OnceValue(func() pair { return newPair("d1", jwt.SigningMethodEdDSA) })
)

func newPair(id string, method jwt.SigningMethod) pair {
	var private crypto.Signer
	var err error
	switch method.Alg()[:2] {
	case "RS", "PS":
		private, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ES":
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		_, private, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		panic(err)
	}
	return pair{id: id, method: method, private: private}
}

func jwks(t testing.TB, pairs ...pair) []byte {
	t.Helper()
	set := jwkset.JWKSMarshal{Keys: []jwkset.JWKMarshal{}}
	for _, p := range pairs {
		k, err := jwkset.NewJWKFromKey(p.private.Public(), jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: p.id, USE: jwkset.UseSig, ALG: jwkset.ALG(p.method.Alg())}})
		if err != nil {
			t.Fatal(err)
		}
		set.Keys = append(set.Keys, k.Marshal())
	}
	b, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// issuer serves a JWK Set that the test changes.
type issuer struct {
	*httptest.Server
	body  atomic.Pointer[[]byte] // nil: 500
	reads atomic.Int64
}

func newIssuer(t testing.TB, pairs ...pair) *issuer {
	i := &issuer{}
	i.publish(t, pairs...)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.reads.Add(1)
		b := i.body.Load()
		if b == nil {
			http.Error(w, "down", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(*b)
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) publish(t testing.TB, pairs ...pair) {
	b := jwks(t, pairs...)
	i.body.Store(&b)
}

func goodClaims() jwt.MapClaims {
	return jwt.MapClaims{"iss": "https://id", "aud": "models", "azp": "batch", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix()}
}

func sign(t testing.TB, p pair, claims jwt.MapClaims, change ...func(*jwt.Token)) string {
	t.Helper()
	token := jwt.NewWithClaims(p.method, claims)
	token.Header["kid"] = p.id
	for _, c := range change {
		c(token)
	}
	raw, err := token.SignedString(p.private)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func batch(where string) Entry {
	return Entry{Name: "batch", Priority: inference.PrioritySheddable, JWT: &JWT{Issuer: "https://id", JWKS: where, Audience: "models", Caller: "azp", User: "sub", Roles: "realm.roles"}}
}

func with(t testing.TB, entries ...Entry) *Callers {
	t.Helper()
	c := New(Options{})
	t.Cleanup(c.Close)
	if err := c.Set(true, entries); err != nil {
		t.Fatal(err)
	}
	return c
}

func sends(header, value string) *inference.Call {
	return &inference.Call{Incoming: map[string][]string{header: {value}}}
}

func bearing(token string) *inference.Call { return sends("authorization", "Bearer "+token) }

// wantRefused fails unless the call is refused with a fault of that kind whose text has words in it and nothing of what was sent.
func wantRefused(t testing.TB, c *Callers, call *inference.Call, kind fault.Kind, words string) {
	t.Helper()
	who, user, err := c.Authenticate(t.Context(), call)
	if err == nil || who != nil || user != "" {
		t.Fatalf("let through as %+v, %q: %v", who, user, err)
	}
	f := fault.Of(err)
	if f.Kind != kind || !strings.Contains(f.Msg, words) {
		t.Errorf("got %v, want %s: …%s…", f, kind.Reason(), words)
	}
	for _, values := range call.Incoming {
		for _, v := range values {
			for _, part := range strings.FieldsFunc(v, func(r rune) bool { return r == ' ' || r == '.' }) {
				if len(part) > 8 && strings.Contains(f.Error(), part) {
					t.Errorf("the refusal quotes what was sent: %v", f)
				}
			}
		}
	}
}

func wantCaller(t testing.TB, c *Callers, call *inference.Call, name, user string) *inference.Caller {
	t.Helper()
	who, got, err := c.Authenticate(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	if who == nil || who.Name != name || got != user {
		t.Fatalf("got %+v, user %q; want %s, %q", who, got, name, user)
	}
	return who
}
