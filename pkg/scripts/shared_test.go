package scripts

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/redis"
)

var _ Shared = (*redis.Overrides)(nil)

// replicas are stores over folders of their own that share one Redis, with the same files.
func replicas(t *testing.T, s *redistest.Server, n int, files map[string]string) []*fixture {
	t.Helper()
	return replicasThatWait(t, time.Minute, s, n, files)
}

// replicasThatWait are replicas that wait for Redis so long; a second where it is silent.
func replicasThatWait(t *testing.T, timeout time.Duration, s *redistest.Server, n int, files map[string]string) []*fixture {
	t.Helper()
	all := make([]*fixture, n)
	for i := range all {
		c, err := redis.Open(redis.Options{Addresses: []string{s.Addr}, Timeout: timeout, Prefix: "prod/models"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		all[i] = fix(t, files, func(o *Options) { o.Shared = redis.NewOverrides(c, "scripts") })
	}
	return all
}

// follows makes replicas follow as long as the test runs.
func follows(t *testing.T, all ...*fixture) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, f := range all {
		running.Go(func() { f.Watch(ctx) })
	}
	t.Cleanup(func() { cancel(); running.Wait() })
}

func (f *fixture) follow1() {
	f.t.Helper()
	if err := f.Follow(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func TestReplicasFollowAnOperatorWithinTwoSeconds(t *testing.T) {
	s := redistest.Start(t)
	all := replicas(t, s, 2, map[string]string{"fraud.lua": answering("model_v1")})
	a, b := all[0], all[1]
	follows(t, a, b)
	calm.Moment(t, func() error {
		begun := time.Now()
		got, err := a.Put(t.Context(), "fraud", []byte(answering("model_v2")), "sre", false)
		if err != nil || got.Scope != AllReplicas {
			t.Fatalf("%+v %v", got, err)
		}
		a.decides("fraud", "model_v2")
		b.eventually("fraud", "model_v2")
		took := time.Since(begun)
		if took <= 5*time.Second { // two on a machine that is not busy
			return nil
		}
		if _, err := a.Rollback(t.Context(), "fraud", ToFile, "sre"); err != nil {
			t.Fatal(err)
		}
		b.eventually("fraud", "model_v1")
		return fmt.Errorf("it took %v", took)
	})
	redistest.Eventually(t, func() error { // what is shown comes right after what runs
		i := b.state1("fraud")
		if i.Who != "sre" || i.Source != FromOverride || i.Override == nil || i.Override.Scope != AllReplicas || i.History[0].Who != "sre" {
			return fmt.Errorf("%+v", i)
		}
		return nil
	})
	// Back, on the other one.
	if got, err := b.Rollback(t.Context(), "fraud", "1", "bob"); err != nil || got.Scope != AllReplicas {
		t.Fatalf("%+v %v", got, err)
	}
	a.eventually("fraud", "model_v1")
	if got, err := a.Rollback(t.Context(), "fraud", ToFile, "sre"); err != nil || got.Scope != AllReplicas {
		t.Fatalf("%+v %v", got, err)
	}
	redistest.Eventually(t, func() error {
		if i := b.state1("fraud"); i.Override != nil {
			return fmt.Errorf("%+v", i.Override)
		}
		return nil
	})
	b.decides("fraud", "model_v1")
	for _, key := range strings.Fields(s.Do("KEYS", "*")) {
		if !strings.HasPrefix(key, "prod/models:") {
			t.Errorf("key %q is not behind the prefix", key)
		}
	}
}

func TestAScriptThatOnlyAnOperatorHasIsSharedToo(t *testing.T) {
	s := redistest.Start(t)
	all := replicas(t, s, 2, nil)
	if _, err := all[0].Put(t.Context(), "fraud", []byte(answering("model_v2")), "sre", false); err != nil {
		t.Fatal(err)
	}
	all[1].follow1()
	all[1].decides("fraud", "model_v2")
	if _, err := all[1].Rollback(t.Context(), "fraud", ToFile, "sre"); err != nil {
		t.Fatal(err)
	}
	all[0].follow1()
	if all[0].Has("fraud") || all[1].Has("fraud") {
		t.Error("it has no file, and is still there")
	}
}

func TestAnOverrideStaysWhereTheFileIsStillTheOneItReplaced(t *testing.T) {
	s := redistest.Start(t)
	all := replicas(t, s, 3, map[string]string{"fraud.lua": answering("model_v1")})
	a, b, c := all[0], all[1], all[2]
	if _, err := a.Put(t.Context(), "fraud", []byte(answering("model_v2")), "sre", false); err != nil {
		t.Fatal(err)
	}
	b.follow1()
	c.write("fraud.lua", answering("model_v3")) // before it has heard of anything
	if err := c.Reload(); err != nil {
		t.Fatal(err)
	}
	c.follow1()
	c.decides("fraud", "model_v3")
	if i := c.state1("fraud"); i.Override == nil || i.Override.InForce {
		t.Errorf("%+v", i.Override)
	}
	a.write("fraud.lua", answering("model_v3"))
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	a.follow1()
	a.decides("fraud", "model_v3")
	b.follow1()
	b.decides("fraud", "model_v2") // the new file has not come here yet
	a.follow1()
	a.decides("fraud", "model_v3")
	a.write("fraud.lua", answering("model_v1")) // what it had replaced: it has ended all the same
	_ = a.Reload()
	a.follow1()
	a.decides("fraud", "model_v1")
	if ends := s.Do("HGET", "prod/models:overrides:{scripts}", "ends:fraud"); ends == "" {
		t.Error("it stays in Redis for ever")
	}
}

func TestAnOutageOfRedisChangesNothingAndWhatWasChangedMeanwhileFollows(t *testing.T) {
	s := redistest.Start(t)
	all := replicas(t, s, 2, map[string]string{"fraud.lua": answering("model_v1"), "rank.lua": answering("model_v1")})
	a, b := all[0], all[1]
	ctx := t.Context()
	if _, err := a.Put(ctx, "fraud", []byte(answering("model_v2")), "sre", false); err != nil {
		t.Fatal(err)
	}
	b.follow1()
	s.Stop()
	if err := b.Follow(ctx); err == nil {
		t.Error("there is no Redis")
	}
	a.decides("fraud", "model_v2")
	b.decides("fraud", "model_v2")
	got, err := b.Put(ctx, "rank", []byte(answering("model_v3")), "bob", false)
	if err != nil || got.Scope != ThisReplica || !strings.Contains(got.Note, "once Redis answers") {
		t.Errorf("%+v %v", got, err)
	}
	b.decides("rank", "model_v3")
	b.again() // a restart knows it still
	b.decides("fraud", "model_v2")
	b.decides("rank", "model_v3")

	s.Restart() // and has lost everything
	follows(t, a, b)
	a.eventually("rank", "model_v3")
	redistest.Eventually(t, func() error {
		for _, name := range []string{"fraud", "rank"} {
			if s.Do("HGET", "prod/models:overrides:{scripts}", "id:"+name) == "" {
				return fmt.Errorf("%s is not shared again", name)
			}
		}
		return nil
	})
	for _, f := range all {
		f.decides("fraud", "model_v2")
		f.decides("rank", "model_v3")
	}
}

func TestWhatWasTakenBackWhileRedisWasSilentDoesNotComeBack(t *testing.T) {
	s := redistest.Start(t)
	all := replicasThatWait(t, time.Second, s, 2, map[string]string{"fraud.lua": answering("model_v1")})
	a, b := all[0], all[1]
	ctx := t.Context()
	redistest.Eventually(t, func() error {
		if got, err := a.Put(ctx, "fraud", []byte(answering("model_v2")), "sre", false); err != nil || got.Scope != AllReplicas {
			return fmt.Errorf("%+v %w", got, err)
		}
		return nil
	})
	redistest.Eventually(t, func() error { return b.Follow(ctx) })
	s.Pause()
	if got, err := a.Rollback(ctx, "fraud", ToFile, "sre"); err != nil || got.Scope != ThisReplica {
		t.Errorf("%+v %v", got, err)
	}
	a.decides("fraud", "model_v1")
	s.Resume()
	follows(t, a, b)
	b.eventually("fraud", "model_v1")
	a.decides("fraud", "model_v1")
}

func TestTheLaterOfTwoChangesWins(t *testing.T) {
	s := redistest.Start(t)
	all := replicasThatWait(t, time.Second, s, 2, map[string]string{"fraud.lua": answering("model_v1")})
	a, b := all[0], all[1]
	ctx := t.Context()
	s.Pause()
	if got, err := a.Put(ctx, "fraud", []byte(answering("model_v2")), "early", false); err != nil || got.Scope != ThisReplica {
		t.Fatalf("%+v %v", got, err)
	}
	s.Resume()
	redistest.Eventually(t, func() error {
		if got, err := b.Put(ctx, "fraud", []byte(answering("model_v3")), "late", false); err != nil || got.Scope != AllReplicas {
			return fmt.Errorf("%+v %w", got, err)
		}
		return nil
	})
	follows(t, a, b)
	a.eventually("fraud", "model_v3")
	b.decides("fraud", "model_v3")
}

func TestWhatIsSharedIsCheckedBeforeItRuns(t *testing.T) {
	s := redistest.Start(t)
	f := replicas(t, s, 1, map[string]string{"fraud.lua": answering("model_v1")})[0]
	ctx := t.Context()
	other, err := redis.Open(redis.Options{Addresses: []string{s.Addr}, Timeout: time.Minute, Prefix: "prod/models"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	shared := redis.NewOverrides(other, "scripts")
	source := "return ("
	broken := fmt.Sprintf(`{"id":"x","hash":%q,"source":%q,"who":"sre","replaces":%q}`, hashOf([]byte(source)), source, f.Hash("fraud"))
	for name, text := range map[string]string{"fraud": broken, "../up": broken, "rank": "{", "lied": strings.Replace(broken, "return (", "return 1", 1)} {
		if err := shared.Put(ctx, name, "x", []byte(text), AnyID); err != nil {
			t.Fatal(err)
		}
	}
	f.follow1()
	f.decides("fraud", "model_v1")
	if i := f.state1("fraud"); i.State != StateRefused {
		t.Errorf("%+v", i)
	}
	if f.Has("../up") || f.Has("rank") || f.Has("lied") {
		t.Error("what is no override was taken")
	}
}
