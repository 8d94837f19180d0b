package redis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/redis"
)

func overrides(t *testing.T, s *redistest.Server, prefix string) *redis.Overrides {
	t.Helper()
	c, err := redis.Open(redis.Options{Addresses: []string{s.Addr}, Timeout: patience, Prefix: prefix}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return redis.NewOverrides(c, "scripts")
}

func TestOverridesAreSharedAndTellWhenTheyChanged(t *testing.T) {
	s := redistest.Start(t)
	a, b := overrides(t, s, "prod/models"), overrides(t, s, "prod/models")
	other := overrides(t, s, "staging")
	ctx := t.Context()

	if rev, ids, err := a.Poll(ctx, ""); rev != "" || len(ids) != 0 || err != nil {
		t.Fatalf("before anything: %q, %v, %v", rev, ids, err)
	}
	if err := a.Put(ctx, "fraud", "one", []byte("return 'a'\x00"), redis.Any); err != nil {
		t.Fatal(err)
	}
	rev, ids, err := b.Poll(ctx, "")
	if diff := cmp.Diff(map[string]string{"fraud": "one"}, ids); diff != "" || err != nil || rev == "" {
		t.Fatalf("%s %v", diff, err)
	}
	if id, text, err := b.Get(ctx, "fraud"); id != "one" || string(text) != "return 'a'\x00" || err != nil {
		t.Errorf("%q %q %v", id, text, err)
	}
	if again, ids, err := b.Poll(ctx, rev); again != rev || ids != nil || err != nil {
		t.Errorf("nothing has changed: %q %v %v", again, ids, err)
	}
	if id, _, err := b.Get(ctx, "rank"); id != "" || err != nil {
		t.Errorf("of a name without one: %q, %v", id, err)
	}
	if rev, _, _ := other.Poll(ctx, ""); rev != "" {
		t.Error("another prefix sees them")
	}
	for _, key := range strings.Fields(s.Do("KEYS", "*")) {
		if !strings.HasPrefix(key, "prod/models:") && !strings.HasPrefix(key, "staging:") {
			t.Errorf("key %q is not behind the prefix", key)
		}
	}

	if err := b.Put(ctx, "fraud", "two", []byte("x"), "zero"); !errors.Is(err, redis.ErrReplaced) {
		t.Errorf("over one that is not there: %v", err)
	}
	if err := b.Put(ctx, "fraud", "two", []byte("x"), "one"); err != nil {
		t.Error(err)
	}
	if err := b.Remove(ctx, "fraud", "one"); err != nil {
		t.Error(err)
	}
	if id, _, _ := b.Get(ctx, "fraud"); id != "two" {
		t.Error("what has another id was removed")
	}
	if err := b.Remove(ctx, "fraud", redis.Any); err != nil {
		t.Error(err)
	}
	if next, ids, err := a.Poll(ctx, rev); next == rev || len(ids) != 0 || err != nil {
		t.Errorf("after it was taken back: %q %v %v", next, ids, err)
	} else if a, b, _ := strings.Cut(next, "."); b == "" || !strings.HasPrefix(rev, a+".") {
		t.Errorf("the epoch went from %q to %q", rev, next)
	}
	if err := a.Put(ctx, "fraud", "one", make([]byte, redis.MaxOverride+1), redis.Any); err == nil {
		t.Error("one that is too large was taken")
	}
}

func TestAnOverrideThatEndsGoesAfterAWhileUnlessItIsPutAgain(t *testing.T) {
	s := redistest.Start(t)
	o := overrides(t, s, "")
	ctx := t.Context()
	for _, name := range []string{"ends", "again", "stays", "later"} {
		if err := o.Put(ctx, name, "one", []byte("x"), ""); err != nil {
			t.Fatal(err)
		}
	}
	for name, after := range map[string]time.Duration{"ends": 30 * time.Millisecond, "again": 30 * time.Millisecond, "later": time.Hour} {
		if err := o.End(ctx, name, "one", after); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.End(ctx, "stays", "another", 0); err != nil {
		t.Fatal(err)
	}
	if err := o.Put(ctx, "again", "two", []byte("y"), redis.Any); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, func() error {
		_, ids, err := o.Poll(ctx, "")
		if diff := cmp.Diff(map[string]string{"again": "two", "stays": "one", "later": "one"}, ids); err == nil && diff != "" {
			err = errors.New(diff)
		}
		return err
	})
}

func TestThereAreOnlySoManyOverrides(t *testing.T) {
	s := redistest.Start(t)
	o := overrides(t, s, "")
	for i := range redis.MaxOverrides {
		if err := o.Put(t.Context(), fmt.Sprint("n", i), "one", []byte("x"), redis.Any); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.Put(t.Context(), "more", "one", []byte("x"), redis.Any); !errors.Is(err, redis.ErrFull) {
		t.Errorf("one more: %v", err)
	}
	if err := o.Put(t.Context(), "n1", "two", []byte("x"), redis.Any); err != nil {
		t.Errorf("in place of one: %v", err)
	}
}

func TestARedisThatLostOverridesSaysSoByItsEpoch(t *testing.T) {
	s := redistest.Start(t)
	o := overrides(t, s, "")
	if err := o.Put(t.Context(), "fraud", "one", []byte("x"), redis.Any); err != nil {
		t.Fatal(err)
	}
	rev, _, err := o.Poll(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	s.Restart()
	redistest.Eventually(t, func() error {
		return o.Put(t.Context(), "rank", "one", []byte("x"), redis.Any)
	})
	next, ids, err := o.Poll(t.Context(), rev)
	epoch, _, _ := strings.Cut(rev, ".")
	if len(ids) != 1 || err != nil || strings.HasPrefix(next, epoch+".") {
		t.Errorf("%q then %q, %v, %v", rev, next, ids, err)
	}
}

func TestAUserThatMayNotReadOverridesDoesNotMakeRedisCountAsDown(t *testing.T) {
	s := redistest.Start(t)
	acl := func(more ...string) {
		s.Do(append([]string{
			"ACL", "SETUSER", "gateway", "reset", "on", ">secret", "~mine:*", "-@all", "+evalsha", "+eval", "+time", "+mget", "+set", "+zadd", "+zrem",
			"+zremrangebyscore", "+zcard", "+pexpire",
		}, more...)...)
	}
	acl()
	c, err := redis.Open(redis.Options{
		Addresses: []string{s.Addr}, Prefix: "mine", Timeout: patience, Credentials: func() (string, string) { return "gateway", "secret" },
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	o := redis.NewOverrides(c, "scripts")
	for range 50 {
		if _, _, err := o.Poll(t.Context(), ""); err == nil {
			t.Fatal("it may")
		}
	}
	if !c.Up() {
		t.Error("Redis counts as down")
	}
	acl("+exists", "+hget", "+hset", "+hsetnx", "+hdel", "+hincrby", "+hkeys")
	redistest.Eventually(t, func() error { return o.Put(t.Context(), "fraud", "one", []byte("x"), redis.Any) })
	if err := o.End(t.Context(), "fraud", "one", time.Nanosecond); err != nil {
		t.Error(err)
	}
	if _, ids, err := o.Poll(t.Context(), ""); err != nil || len(ids) > 0 {
		t.Errorf("%v %v", ids, err)
	}
	if err := o.Remove(t.Context(), "fraud", redis.Any); err != nil {
		t.Error(err)
	}
}
