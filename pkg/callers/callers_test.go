package callers

import (
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestAKeyIsItsCallersInEitherHeader(t *testing.T) {
	one, two, other := NewKey(), NewKey(), NewKey()
	c := with(t, Entry{Name: "svc", Keys: []Hash{HashKey(one), HashKey(two)}, MayNameUsers: true, Priority: inference.PriorityCritical}, Entry{Name: "web", Keys: []Hash{HashKey(other)}})
	for _, call := range []*inference.Call{
		sends("x-api-key", one), sends("x-api-key", two), bearing(one), sends("authorization", "bearer "+one), sends("authorization", "BEARER  "+two+" "),
	} {
		who := wantCaller(t, c, call, "svc", "")
		if !who.MayNameUsers || who.Priority != inference.PriorityCritical {
			t.Errorf("got %+v", who)
		}
	}
	wantCaller(t, c, sends("x-api-key", other), "web", "")
	both := sends("x-api-key", other)
	both.Incoming["authorization"] = []string{"Bearer of something for the next hop"}
	wantCaller(t, c, both, "web", "")
	if who := c.ByKey(one); who == nil || who.Name != "svc" || c.ByKey("") != nil || c.ByKey(one+"x") != nil {
		t.Error("ByKey does not know keys")
	}
}

func TestAWrongKeyIsRefusedWithWhatToDo(t *testing.T) {
	key := NewKey()
	c := with(t, Entry{Name: "svc", Keys: []Hash{HashKey(key)}, SANs: []string{"spiffe://prod/*"}})
	huge := strings.Repeat("k", maxCredential+1)
	for _, w := range []struct {
		call  *inference.Call
		words string
	}{
		{sends("x-api-key", key[:len(key)-1]), "not one of any caller"},
		{sends("x-api-key", key+"x"), "not one of any caller"},
		{sends("x-api-key", HashKey(key).String()), "not one of any caller"}, // the hash opens nothing
		{sends("x-api-key", strings.Repeat("k", maxCredential)), "not one of any caller"},
		{sends("x-api-key", huge), "more than 8192 bytes"},
		{sends("x-api-key", ""), "there and empty"},
		{&inference.Call{Incoming: map[string][]string{"x-api-key": {}}}, "there and empty"},
		{&inference.Call{Incoming: map[string][]string{"x-api-key": {key, key}}}, "more than once"},
		{bearing("wrong-key-of-somebody"), "not one of any caller"},
		{bearing(huge), "more than 8192 bytes"},
		{bearing(""), "not of the form"},
		{bearing("a b"), "not of the form"},
		{bearing("a.b.c"), "no caller here has tokens"},
		{sends("authorization", ""), "not of the form"},
		{sends("authorization", "Bearer"), "not of the form"},
		{sends("authorization", "Basic dXNlcjpwYXNzd29yZA=="), "not of the form"},
		{sends("authorization", key), "not of the form"},
		{&inference.Call{Incoming: map[string][]string{"authorization": {"Bearer " + key, "Bearer " + key}}}, "more than once"},
	} {
		wantRefused(t, c, w.call, fault.AuthInvalid, w.words)
	}
}

func TestNoCredentialIsRefusedNamingTheWaysIn(t *testing.T) {
	keys, tokens, certs := Entry{Name: "a", Keys: []Hash{HashKey("k")}}, batch("none.json"), Entry{Name: "c", SANs: []string{"c.internal"}}
	for words, entries := range map[string][]Entry{
		"send a key as x-api-key or as authorization: Bearer; ":                                                                        {keys},
		"send a signed token as authorization: Bearer; ":                                                                               {tokens},
		"a key as x-api-key or as authorization: Bearer, or a signed token as authorization: Bearer, or a client certificate over TLS": {keys, tokens, certs},
		"knows no callers": nil,
	} {
		wantRefused(t, with(t, entries...), &inference.Call{}, fault.AuthMissing, words)
	}
}

func TestWithoutAuthNobodyIsAskedAndNothingIsBelieved(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	for range 2 { // at first, and when it is said
		who, user, err := c.Authenticate(t.Context(), sends("x-api-key", "whatever"))
		if who != nil || user != "" || err != nil || c.Required() {
			t.Errorf("got %+v, %q, %v", who, user, err)
		}
		if err := c.Set(false, []Entry{{Name: "svc", Keys: []Hash{HashKey("k")}}}); err != nil {
			t.Fatal(err)
		}
	}
	if c.ByKey("k") == nil {
		t.Error("the admin port's keys are gone")
	}
}

func TestAKeyIsReplacedWithoutARestartAndWithoutAGap(t *testing.T) {
	before, after := NewKey(), NewKey()
	entry := func(keys ...string) []Entry {
		e := Entry{Name: "svc"}
		for _, k := range keys {
			e.Keys = append(e.Keys, HashKey(k))
		}
		return []Entry{e}
	}
	c := with(t, entry(before)...)
	stop := make(chan struct{})
	var traffic sync.WaitGroup
	for _, k := range []string{before, after} {
		traffic.Go(func() {
			ever := false
			for {
				who, _, err := c.Authenticate(t.Context(), sends("x-api-key", k))
				if ever && k == after && err != nil {
					t.Error("the new key stopped being good")
				}
				ever = ever || who != nil
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for _, live := range [][]string{{before, after}, {after}} {
		if err := c.Set(true, entry(live...)); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	traffic.Wait()
	wantCaller(t, c, sends("x-api-key", after), "svc", "")
	wantRefused(t, c, sends("x-api-key", before), fault.AuthInvalid, "has not been replaced since")
}

func TestEntriesThatCannotBeMeantAreRefusedAndChangeNothing(t *testing.T) {
	k := HashKey("k")
	good := Entry{Name: "svc", Keys: []Hash{k}}
	c := with(t, good)
	for words, entries := range map[string][]Entry{
		"callers[0].name":                   {{Keys: []Hash{k}}},
		"declared twice":                    {good, {Name: "svc", Keys: []Hash{HashKey("other")}}},
		"has no way in":                     {{Name: "svc"}},
		`"svc" and "web" have the same key`: {good, {Name: "web", Keys: []Hash{k}}},
		"hash of no key":                    {{Name: "svc", Keys: []Hash{{}}}},
		"callers[1].keys: a hash of no key": {good, {Name: "web", Keys: []Hash{HashKey("")}}},
		"audience are all needed":           {{Name: "svc", JWT: &JWT{Issuer: "i", JWKS: "j"}}},
		"must name somebody":                {{Name: "svc", SANs: []string{"*"}}},
		"at most 10000":                     make([]Entry, maxEntries+1),
	} {
		if err := c.Set(true, entries); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want %q", err, words)
		}
	}
	wantCaller(t, c, sends("x-api-key", "k"), "svc", "")
	c.Close()
	if c.Set(true, nil) == nil {
		t.Error("a closed one was set")
	}
}

func TestKeysAreLongRandomAndKnowTheirHash(t *testing.T) {
	seen := map[string]bool{}
	form := regexp.MustCompile(`^mgw_[0-9A-Za-z]{43}$`)
	for range 1000 {
		k := NewKey()
		if seen[k] || !form.MatchString(k) {
			t.Fatalf("key %q", k)
		}
		seen[k] = true
		if h, err := ParseHash(HashKey(k).String()); err != nil || h != HashKey(k) {
			t.Fatalf("%v, %v", h, err)
		}
	}
	for _, text := range []string{"", "sha256:", "mgw_secret", "sha256:" + strings.Repeat("g", 64), "sha256:" + strings.Repeat("a", 63), strings.Repeat("a", 64), "sha1:" + strings.Repeat("a", 64)} {
		if _, err := ParseHash(text); err == nil || (len(text) > 8 && strings.Contains(err.Error(), text)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzHeadersOfCredentials(f *testing.F) {
	key := NewKey()
	f.Add("x-api-key", key)
	f.Add("authorization", "Bearer "+key)
	f.Add("authorization", "bearer a.b.c")
	f.Add("authorization", "Bearer eyJhbGciOiJub25lIn0.e30.")
	f.Add("authorization", "Bearer\t"+key)
	c := with(f, Entry{Name: "svc", Keys: []Hash{HashKey(key)}}, batch("none.json"))
	f.Fuzz(func(t *testing.T, header, value string) {
		who, user, err := c.Authenticate(t.Context(), sends(header, value))
		if (who == nil) == (err == nil) || user != "" {
			t.Fatalf("%q: %q gives %v, %q, %v", header, value, who, user, err)
		}
		if who != nil && !strings.Contains(value, key) {
			t.Fatalf("%q: %q opens the door", header, value)
		}
		if k := fault.Of(err); err != nil && k.Kind != fault.AuthInvalid && k.Kind != fault.AuthMissing && k.Kind != fault.AuthUnavailable {
			t.Fatalf("%q: %q is %v", header, value, err)
		}
	})
}

func BenchmarkAuthenticateKey(b *testing.B) {
	key := NewKey()
	c := with(b, Entry{Name: "svc", Keys: []Hash{HashKey(key)}})
	call := sends("x-api-key", key)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := c.Authenticate(b.Context(), call); err != nil {
			b.Fatal(err)
		}
	}
}
