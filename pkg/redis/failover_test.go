package redis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/redis"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

// failover kills the master under a client's draws, which go on with the replica.
func failover(t *testing.T, s *redistest.Sentinels, o redis.Options) {
	t.Helper()
	o.Timeout = redis.DefaultTimeout * 10
	limits := redis.NewLimits(open(t, o, nil))
	set := func() []limit.Draw {
		return []limit.Draw{{Key: limit.ModelBase("failover", "l").Key(), Rate: inference.Rate{Burst: 1000}, Cost: 1}}
	}
	drawOnce := func() error {
		_, err := limits.Draw(context.Background(), set())
		return err
	}
	redistest.Eventually(t, drawOnce)
	before := held(t, limits, set())
	redistest.Eventually(t, func() error { // what was drawn is with the replica
		if got := s.Redis[1].Do("EXISTS", redis.DefaultPrefix+":"+set()[0].Key); got != "1" {
			return fmt.Errorf("the replica does not have the bucket")
		}
		return nil
	})
	s.Redis[0].Stop()
	redistest.Eventually(t, drawOnce)
	for _, sentinel := range s.Sentinels { // new clients may ask any of them
		redistest.Eventually(t, func() error {
			master := strings.ReplaceAll(sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name), "\n", ":")
			if master != s.Redis[1].Addr {
				return fmt.Errorf("a sentinel still names %s", master)
			}
			return nil
		})
	}
	if after := held(t, limits, set()); after >= before {
		t.Errorf("%v tokens after the failover and %v before: the replica did not know of the draws", after, before)
	}
}

func held(t testing.TB, s limit.Store, draws []limit.Draw) float64 {
	t.Helper()
	if _, err := s.Peek(context.Background(), draws); err != nil {
		t.Fatal(err)
	}
	return draws[0].Left
}
