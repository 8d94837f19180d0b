package door

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

type limiter struct {
	asked []netip.Addr
	err   error
}

func (l *limiter) Door(_ context.Context, c *inference.Call) error {
	l.asked = append(l.asked, c.Address)
	return l.err
}

func pass(context.Context, *inference.Call) error { return nil }

func peer(ip string) net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip), 4711))
}

func prefixes(s ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, p := range s {
		list = append(list, netip.MustParsePrefix(p))
	}
	return list
}

func TestForwardedAddressesCountOnlyFromTrustedProxiesAndFromTheRight(t *testing.T) {
	const proxy, stranger = "10.1.2.3", "203.0.113.9"
	for name, c := range map[string]struct {
		peer     string
		xff, fwd []string
		want     string
	}{
		"no header":                             {peer: proxy, want: proxy},
		"a stranger's header":                   {peer: stranger, xff: []string{"192.0.2.1"}, want: stranger},
		"a stranger's Forwarded":                {peer: stranger, fwd: []string{"for=192.0.2.1"}, want: stranger},
		"one hop":                               {peer: proxy, xff: []string{"192.0.2.1"}, want: "192.0.2.1"},
		"what the client wrote stands left":     {peer: proxy, xff: []string{"1.1.1.1, 192.0.2.1"}, want: "192.0.2.1"},
		"two proxies":                           {peer: proxy, xff: []string{"1.1.1.1, 192.0.2.1, 10.9.9.9"}, want: "192.0.2.1"},
		"several lines are one list":            {peer: proxy, xff: []string{"1.1.1.1", "192.0.2.1", "10.9.9.9,10.9.9.8"}, want: "192.0.2.1"},
		"all trusted":                           {peer: proxy, xff: []string{"10.0.0.1, 10.0.0.2"}, want: "10.0.0.1"},
		"garbage":                               {peer: proxy, xff: []string{"192.0.2.1, nonsense"}, want: proxy},
		"garbage behind the answer":             {peer: proxy, xff: []string{"nonsense, 192.0.2.1"}, want: "192.0.2.1"},
		"empty":                                 {peer: proxy, xff: []string{""}, want: proxy},
		"empty element":                         {peer: proxy, xff: []string{"192.0.2.1,,"}, want: proxy},
		"with a port":                           {peer: proxy, xff: []string{"192.0.2.1:80"}, want: "192.0.2.1"},
		"IPv6":                                  {peer: proxy, xff: []string{"2001:db8::7"}, want: "2001:db8::7"},
		"IPv6 with a port":                      {peer: proxy, xff: []string{"[2001:db8::7]:80"}, want: "2001:db8::7"},
		"IPv6 in brackets":                      {peer: proxy, xff: []string{"[2001:db8::7]"}, want: "2001:db8::7"},
		"IPv4 in IPv6":                          {peer: proxy, xff: []string{"::ffff:192.0.2.1"}, want: "192.0.2.1"},
		"IPv4 proxy in IPv6":                    {peer: "::ffff:10.1.2.3", xff: []string{"192.0.2.1"}, want: "192.0.2.1"},
		"a zone":                                {peer: proxy, xff: []string{"fe80::1%eth0"}, want: "fe80::1"},
		"too many hops":                         {peer: proxy, xff: []string{"192.0.2.1" + strings.Repeat(", 10.0.0.1", maxHops)}, want: proxy},
		"Forwarded":                             {peer: proxy, fwd: []string{`for=1.1.1.1, For=192.0.2.1;proto=https;by=10.1.2.3`}, want: "192.0.2.1"},
		"Forwarded IPv6":                        {peer: proxy, fwd: []string{`proto=http; for="[2001:db8::7]:4711"`}, want: "2001:db8::7"},
		"Forwarded hides":                       {peer: proxy, fwd: []string{"for=unknown"}, want: proxy},
		"Forwarded without for":                 {peer: proxy, fwd: []string{"proto=https"}, want: proxy},
		"both agree":                            {peer: proxy, xff: []string{"192.0.2.1"}, fwd: []string{"for=192.0.2.1"}, want: "192.0.2.1"},
		"the client wrote the other of the two": {peer: proxy, xff: []string{"192.0.2.1"}, fwd: []string{"for=8.8.8.8"}, want: proxy},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Stage{Limiter: &limiter{}}
			s.Trust(prefixes("10.0.0.0/8", "2001:db8:ffff::/48"))
			in := map[string][]string{}
			if c.xff != nil {
				in["x-forwarded-for"] = c.xff
			}
			if c.fwd != nil {
				in["forwarded"] = c.fwd
			}
			call := &inference.Call{Peer: peer(c.peer), Incoming: in}
			if err := s.Wrap(pass)(t.Context(), call); err != nil || call.Address.String() != c.want {
				t.Errorf("address %v, %v; want %s", call.Address, err, c.want)
			}
		})
	}
}

func TestAStreamIsLetInOnceAndItsMessagesHaveItsAddress(t *testing.T) {
	l := &limiter{}
	s := &Stage{Limiter: l}
	open := &inference.Call{Peer: peer("192.0.2.1"), Opening: true}
	err := s.Open(func(ctx context.Context, c *inference.Call) error {
		for range 3 {
			m := &inference.Call{Peer: c.Peer, Stream: &inference.Stream{}}
			if err := s.Wrap(pass)(ctx, m); err != nil || m.Address != c.Address {
				t.Errorf("message: %v, address %v, want %v", err, m.Address, c.Address)
			}
		}
		return nil
	})(t.Context(), open)
	if err != nil || len(l.asked) != 1 {
		t.Errorf("%v; asked %d times, want once", err, len(l.asked))
	}
}

func TestWhoIsRefusedAtTheDoorGetsNoFurther(t *testing.T) {
	full := errors.New("full")
	s := &Stage{Limiter: &limiter{err: full}}
	next := func(context.Context, *inference.Call) error { t.Error("it went on"); return nil }
	if err := s.Wrap(next)(t.Context(), &inference.Call{}); !errors.Is(err, full) {
		t.Error(err)
	}
	if err := s.Open(next)(t.Context(), &inference.Call{}); !errors.Is(err, full) {
		t.Error(err)
	}
}

func TestAnUnknownAddressIsTheZeroOne(t *testing.T) {
	s := &Stage{Limiter: &limiter{}}
	s.Trust(prefixes("0.0.0.0/0"))
	for _, a := range []net.Addr{nil, &net.UnixAddr{Name: "@"}} {
		c := &inference.Call{Peer: a, Incoming: map[string][]string{"x-forwarded-for": {"192.0.2.1"}}}
		if err := s.Wrap(pass)(t.Context(), c); err != nil || c.Address.IsValid() {
			t.Errorf("%v: %v, %v", a, c.Address, err)
		}
	}
}

func FuzzForwarded(f *testing.F) {
	f.Add("1.1.1.1, 192.0.2.1", `for="[2001:db8::7]:4711";proto=http`)
	f.Add(",", "for=;for=\"")
	trusted := prefixes("10.0.0.0/8")
	at := netip.MustParseAddr("10.0.0.1")
	f.Fuzz(func(t *testing.T, xff, forwarded string) {
		for _, a := range []netip.Addr{
			behind(trusted, at, []string{xff}, nil), behind(trusted, at, nil, []string{forwarded}), behind(trusted, at, []string{xff}, []string{forwarded}),
		} {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
				t.Errorf("%q, %q give %v", xff, forwarded, a)
			}
		}
		// Whatever is put in front of an address that is no proxy changes nothing.
		if a := behind(trusted, at, []string{xff, "192.0.2.1"}, nil); a.String() != "192.0.2.1" {
			t.Errorf("%q in front of it gives %v", xff, a)
		}
	})
}

func BenchmarkDoorWithoutProxies(b *testing.B) {
	h := (&Stage{Limiter: &limiterNone{}}).Wrap(pass)
	c := &inference.Call{Peer: peer("192.0.2.1")}
	b.ReportAllocs()
	for b.Loop() {
		_ = h(b.Context(), c)
	}
}

func BenchmarkDoorBehindAProxy(b *testing.B) {
	s := &Stage{Limiter: &limiterNone{}}
	s.Trust(prefixes("10.0.0.0/8"))
	h := s.Wrap(pass)
	c := &inference.Call{Peer: peer("10.0.0.1"), Incoming: map[string][]string{"x-forwarded-for": {"1.1.1.1, 192.0.2.1, 10.0.0.9"}}}
	b.ReportAllocs()
	for b.Loop() {
		_ = h(b.Context(), c)
	}
}

type limiterNone struct{}

func (limiterNone) Door(context.Context, *inference.Call) error { return nil }
