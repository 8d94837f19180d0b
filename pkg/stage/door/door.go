// Package door finds out which address a call comes from, and refuses one whose address has used up a limit per IP,
// once for a call or a stream, before any credential is looked at.
//
// The address is the connection's. Only where that is a trusted proxy, it is the right-most address in
// X-Forwarded-For or Forwarded that is not one itself: what stands further left was written by whoever sent it.
// A header that cannot be read, or two that disagree, leave it at the connection's address. Limits take IPv6
// addresses by their /64.
package door

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Limiter knows the limits per IP.
type Limiter interface {
	// Door refuses a call whose Address has used up a limit. It never waits.
	Door(ctx context.Context, c *inference.Call) error
}

// Stage is the door. Its Limiter must be set before the first call; its trusted proxies may change at any time.
type Stage struct {
	Limiter Limiter
	trusted atomic.Pointer[[]netip.Prefix]
}

// Trust replaces the proxies whose headers are believed.
func (s *Stage) Trust(proxies []netip.Prefix) {
	list := make([]netip.Prefix, len(proxies))
	for i, p := range proxies {
		list[i] = p.Masked()
	}
	s.trusted.Store(&list)
}

// Wrap lets a unary call in. The messages of a stream were let in with it.
func (s *Stage) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		c.Address = s.address(c)
		if c.Stream == nil {
			if err := s.Limiter.Door(ctx, c); err != nil {
				return err
			}
		}
		return next(ctx, c)
	}
}

// Open lets a stream in.
func (s *Stage) Open(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		c.Address = s.address(c)
		if err := s.Limiter.Door(ctx, c); err != nil {
			return err
		}
		return next(ctx, c)
	}
}

// address is where c comes from.
func (s *Stage) address(c *inference.Call) netip.Addr {
	peer := addressOf(c.Peer)
	trusted := s.trusted.Load()
	if trusted == nil || len(*trusted) == 0 || !contains(*trusted, peer) {
		return peer
	}
	return behind(*trusted, peer, c.Incoming["x-forwarded-for"], c.Incoming["forwarded"])
}

func addressOf(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap().WithZone("")
	case nil:
		return netip.Addr{}
	}
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

func contains(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
