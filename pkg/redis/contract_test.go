package redis_test

import (
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/redis"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
	"github.com/model-gateway/model-gateway/pkg/stage/limit/limittest"
)

// replicas opens three clients, as three gateways have them.
func replicas(t testing.TB, o redis.Options) []limit.Store {
	t.Helper()
	var stores []limit.Store
	for range 3 {
		stores = append(stores, redis.NewLimits(open(t, o, nil)))
	}
	return stores
}

func open(t testing.TB, o redis.Options, observer redis.Observer) *redis.Client {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = patience // these tests are not about time, and the machine may be busy
	}
	c, err := redis.Open(o, observer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// pass waits for real: the clock is that of Redis.
func pass(d time.Duration) { <-time.After(d) }

func TestBucketsInRedisKeepTheContract(t *testing.T) {
	s := redistest.Start(t)
	limittest.Contract(t, limittest.Subject{
		Stores: replicas(t, redis.Options{Addresses: []string{s.Addr}}), Pass: pass,
	})
}

func TestBucketsInRedisKeepTheContractOverAUnixSocket(t *testing.T) {
	s := redistest.Start(t)
	limittest.Contract(t, limittest.Subject{
		Stores: replicas(t, redis.Options{Addresses: []string{"unix://" + s.Socket}}), Pass: pass, Calls: 2000,
	})
}

func TestBucketsInAClusterKeepTheContract(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	limittest.Contract(t, limittest.Subject{
		Stores: replicas(t, redis.Options{Mode: redis.Cluster, Addresses: redistest.Addrs(nodes)[:1]}), Pass: pass,
	})
}

func TestBucketsBehindSentinelsKeepTheContractAndOutliveAFailover(t *testing.T) {
	s := redistest.StartSentinels(t)
	options := redis.Options{Mode: redis.Sentinel, Addresses: s.Addrs(), Master: s.Name}
	limittest.Contract(t, limittest.Subject{Stores: replicas(t, options), Pass: pass, Calls: 2000})
	failover(t, s, options)
	limittest.Contract(t, limittest.Subject{Stores: replicas(t, options), Pass: pass, Calls: 2000})
}
