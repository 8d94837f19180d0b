package limit_test

import (
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

func TestKeysReadLikeWhatTheyName(t *testing.T) {
	for want, got := range map[string]string{
		"limit:{fraud}:per-model":              limit.ModelBase("fraud", "per-model").Key(),
		"limit:{fraud}:per-user:ann@shop.test": limit.ModelBase("fraud", "per-user").For("ann@shop.test"),
		"limit:per-ip:2001:db8::1":             limit.SpanningBase("per-ip").For("2001:db8::1"),
		"limit:{a%7Db%3A}:l:x%20%7B":           limit.ModelBase("a}b:", "l").For("x {"),
		"limit:{m}:l:":                         limit.ModelBase("m", "l").For(""),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	long := limit.ModelBase("m", "l").For(strings.Repeat("x", 1<<20))
	if len(long) > 100 {
		t.Errorf("the key of a long user has %d bytes", len(long))
	}
}

func FuzzNoTwoNamesShareAKey(f *testing.F) {
	f.Add("m", "l", "u", "m", "l", "v")
	f.Add("m}", "l:", "u", "m", "}:l", ":u")
	f.Add("%7D", "", "", "}", "", "")
	f.Add(strings.Repeat("a", 200), "", "", strings.Repeat("a", 201), "", "")
	f.Add("m", "l", "!u", "m", "l", "u")
	f.Add("#", "", "#", "#", "#", "")
	f.Fuzz(func(t *testing.T, model1, limit1, user1, model2, limit2, user2 string) {
		a, b := limit.ModelBase(model1, limit1).For(user1), limit.ModelBase(model2, limit2).For(user2)
		if same := model1 == model2 && limit1 == limit2 && user1 == user2; same != (a == b) {
			t.Errorf("%q and %q", a, b)
		}
		if c := limit.ModelBase(model2, limit2).Key(); a == c {
			t.Errorf("%q is with and without a user", a)
		}
		if c := limit.ModelBase(model2, limit2).ForCaller(user2); a == c {
			t.Errorf("%q is a user's and a caller's", a)
		}
		if s := limit.SpanningBase(limit2).For(user2); a == s {
			t.Errorf("%q belongs to a model and spans models", a)
		}
		for _, key := range []string{a, b} {
			if strings.Count(key, "{") != 1 || strings.Count(key, "}") != 1 || strings.ContainsAny(key, " \r\n\x00") {
				t.Errorf("%q", key)
			}
			if len(key) > 450 {
				t.Errorf("%d bytes", len(key))
			}
		}
		if model1 != "" && model1 == model2 && limit.Tag(a) != limit.Tag(b) {
			t.Errorf("%q and %q are of one model and not of one slot", a, b)
		}
	})
}
