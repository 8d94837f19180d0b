package redis_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/redis"
)

func sequences(t *testing.T, s *redistest.Server) *redis.Sequences {
	t.Helper()
	c, err := redis.Open(redis.Options{Addresses: []string{s.Addr}, Timeout: 30 * time.Second, Prefix: "prod"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return redis.NewSequences(c)
}

func TestWhereASequenceIsIsKnownToAllReplicas(t *testing.T) {
	s := redistest.Start(t)
	a, b := sequences(t, s), sequences(t, s)
	ctx := t.Context()
	says := func(what, want, got string, err error) {
		t.Helper()
		if got != want || err != nil {
			t.Errorf("%s: %q, want %q: %v", what, got, want, err)
		}
	}
	ask := func(of *redis.Sequences, want string) {
		t.Helper()
		got, err := of.Ask(ctx, "k", time.Hour)
		says("ask", want, got, err)
	}
	ask(a, "")
	if s.Do("EXISTS", "prod:sequence:{k}") != "0" {
		t.Error("asking leaves something behind")
	}
	got, err := a.Claim(ctx, "k", "one", time.Hour)
	says("the first claim", "one", got, err)
	got, err = b.Claim(ctx, "k", "two", time.Hour)
	says("a claim that is late", "one", got, err)
	ask(b, "one")
	got, err = b.Swap(ctx, "k", "one", "lost", time.Hour)
	says("a swap", "lost", got, err)
	ask(a, "lost")
	got, err = b.Swap(ctx, "k", "one", "again", time.Hour)
	says("a swap of what is not there", "lost", got, err)
	ask(a, "lost")
	if err := a.Put(ctx, "k", "anew", time.Hour); err != nil {
		t.Error(err)
	}
	ask(b, "anew")
	if got, err := a.Ask(ctx, "other", time.Hour); got != "" || err != nil {
		t.Errorf("of another sequence: %q, %v", got, err)
	}
}

func TestWhatIsKnownOfASequenceGoesByItself(t *testing.T) {
	s := redistest.Start(t)
	q := sequences(t, s)
	ctx := t.Context()
	lives := func(least, most time.Duration) {
		t.Helper()
		ms, _ := strconv.Atoi(s.Do("PTTL", "prod:sequence:{k}"))
		if left := time.Duration(ms) * time.Millisecond; left <= least || left > most {
			t.Errorf("it is kept for %s, want more than %s and at most %s", left, least, most)
		}
	}
	_, err := q.Claim(ctx, "k", "x", 3*time.Hour)
	lives(2*time.Hour, 3*time.Hour)
	_, err2 := q.Ask(ctx, "k", time.Hour) // its last step
	lives(0, time.Hour)
	_, err3 := q.Claim(ctx, "k", "y", 2*time.Hour)
	lives(time.Hour, 2*time.Hour)
	_, err4 := q.Swap(ctx, "k", "x", "z", 4*time.Hour)
	lives(3*time.Hour, 4*time.Hour)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Error(err)
	}
}
