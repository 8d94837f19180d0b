package redis

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
)

func TestReplicasCountEachOtherAndRememberWhileRedisIsGone(t *testing.T) {
	s := redistest.Start(t)
	const every = 50 * time.Millisecond
	var all sync.WaitGroup
	var peers []*Peers
	var leave []context.CancelFunc
	for i := range 3 {
		c, err := Open(Options{Addresses: []string{s.Addr}, Timeout: time.Second}, nil)
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
		t.Cleanup(func() { _ = c.Close() })
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
	count(3, peers...)
	leave[0]() // says goodbye
	count(2, peers[1:]...)

	s.Stop()
	redistest.Eventually(t, func() error {
		if peers[1].client.Up() {
			return fmt.Errorf("heartbeats have not noticed yet")
		}
		return nil
	})
	if peers[1].Count() != 2 {
		t.Errorf("without Redis there are %d replicas, want the last 2", peers[1].Count())
	}
	leave[1]()
	s.Restart()
	redistest.Eventually(t, func() error {
		if !peers[2].client.Up() {
			return fmt.Errorf("down")
		}
		return nil
	})
	if peers[2].Count() != 2 {
		t.Errorf("a Redis that knows nobody yet was believed: %d", peers[2].Count())
	}
	count(1, peers[2])
}
