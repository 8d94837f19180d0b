package redis

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
)

// The clock is that of Redis, and a machine that stalls for three heartbeats makes replicas forget each other.
func TestReplicasCountEachOtherAndRememberWhileRedisIsGone(t *testing.T) {
	s := redistest.Start(t)
	calm.Moment(t, func() error { return threeReplicas(t, s) })
}

func threeReplicas(t *testing.T, s *redistest.Server) error {
	const every = 50 * time.Millisecond
	var all sync.WaitGroup
	var peers []*Peers
	var leave []context.CancelFunc
	for i := range 3 {
		c, err := Open(Options{Addresses: []string{s.Addr}, Timeout: time.Minute}, nil)
		if err != nil {
			t.Fatal(err)
		}
		p := newPeers(c, fmt.Sprint("replica-", i), 7, every)
		ctx, cancel := context.WithCancel(context.Background())
		peers, leave = append(peers, p), append(leave, cancel)
		if p.Count() != 7 {
			t.Errorf("before Redis has told there are %d replicas, want what was configured", p.Count())
		}
		all.Go(func() { p.Run(ctx) })
		defer func() { _ = c.Close() }()
	}
	defer all.Wait()
	for _, cancel := range leave {
		defer cancel()
	}
	count := func(want int, of ...*Peers) {
		t.Helper()
		redistest.Eventually(t, func() error {
			for _, p := range of {
				if p.Count() != want {
					return fmt.Errorf("%s counts %d replicas, want %d", p.id, p.Count(), want)
				}
			}
			return nil
		})
	}
	up := func(p *Peers, want bool) {
		t.Helper()
		redistest.Eventually(t, func() error {
			if p.client.Up() != want {
				return fmt.Errorf("heartbeats have not noticed yet")
			}
			return nil
		})
	}
	count(3, peers...)
	leave[0]() // says goodbye
	count(2, peers[1:]...)

	s.Stop()
	up(peers[1], false)
	up(peers[2], false)
	remembered := [2]int{peers[1].Count(), peers[2].Count()}
	leave[1]()
	s.Restart()
	up(peers[2], true)
	back := peers[2].Count()
	count(1, peers[2])
	if remembered != [2]int{2, 2} || back != 2 {
		return fmt.Errorf("without Redis there are %v replicas, want the last 2; a Redis that knows nobody yet makes it %d", remembered, back)
	}
	return nil
}
