package redis_test

import (
	"context"
	"fmt"
	"strconv"
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
	key := redis.DefaultPrefix + ":" + set()[0].Key
	redistest.Eventually(t, func() error { // what was drawn is with the replica
		if there, here := s.Redis[0].Do("GET", key), s.Redis[1].Do("GET", key); here != there {
			return fmt.Errorf("the replica has %q, the master %q", here, there)
		}
		return nil
	})
	before := held(t, limits, set())
	s.FailOver()
	redistest.Eventually(t, drawOnce)
	if after := held(t, limits, set()); after >= before {
		t.Errorf("%v tokens after the failover and %v before: the replica did not know of the draws", after, before)
	}
}

// held is what the bucket has when it can be asked.
func held(t testing.TB, s limit.Store, draws []limit.Draw) float64 {
	t.Helper()
	redistest.Eventually(t, func() error {
		_, err := s.Peek(context.Background(), draws)
		return err
	})
	return draws[0].Left
}

func TestASlotThatMovesToAnotherMasterIsFollowed(t *testing.T) {
	nodes := redistest.StartCluster(t, 2)
	limits := redis.NewLimits(open(t, redis.Options{Mode: redis.Cluster, Addresses: redistest.Addrs(nodes)}, nil))
	draws := []limit.Draw{{Key: limit.ModelBase("moving", "l").Key(), Rate: inference.Rate{Burst: 10}, Cost: 1}}
	slot := nodes[0].Do("CLUSTER", "KEYSLOT", draws[0].Key)
	if v, err := limits.Draw(context.Background(), one("other")); err != nil || !v.OK {
		t.Fatalf("%+v, %v", v, err) // now the client knows who has which slot
	}
	from, to := nodes[0], nodes[1]
	if n, _ := strconv.Atoi(slot); n >= 16384/2 {
		from, to = to, from
	}
	id := to.Do("CLUSTER", "MYID")
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.Do("CLUSTER", "MYID"))
	from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", id)
	for i := range 3 { // the bucket is not there yet: ASK
		if v, err := limits.Draw(context.Background(), draws); err != nil || !v.OK {
			t.Errorf("draw %d while the slot is moving: %+v, %v", i, v, err)
		}
	}
	to.Do("CLUSTER", "SETSLOT", slot, "NODE", id)
	from.Do("CLUSTER", "SETSLOT", slot, "NODE", id)
	for i := range 3 {
		if v, err := limits.Draw(context.Background(), draws); err != nil || !v.OK || draws[0].Left != float64(6-i) {
			t.Errorf("draw %d after the slot moved: %+v %+v, %v", i, v, draws, err)
		}
	}
}
