package triton

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"
)

// Resolver finds the addresses of an upstream and goes on finding them.
type Resolver interface {
	// Watch calls set with all addresses, host:port, as soon as they are known and again when they have changed, until ctx
	// ends. A receive from again asks for a look right now, because a connection has failed. An empty or failed look is no
	// reason to call set: what was there stays.
	Watch(ctx context.Context, again <-chan struct{}, set func(addresses []string))
	// String names what is resolved, for messages.
	String() string
}

const (
	dnsScheme   = "dns://"
	dnsEvery    = 10 * time.Second
	dnsSoonest  = time.Second     // between two looks, however many connections fail
	dnsTimeout  = 3 * time.Second // of one look
	dnsWarn     = time.Minute     // between two warnings while it fails
	maxHostName = 253
)

func resolverFor(endpoints []string, lookup func(context.Context, string) ([]string, error), log *slog.Logger) (Resolver, error) {
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("no endpoints; give host:port, several of them, or dns:///host:port")
	}
	if len(endpoints) > maxEndpoints {
		return nil, fmt.Errorf("%d endpoints; at most %d are served", len(endpoints), maxEndpoints)
	}
	if rest, ok := strings.CutPrefix(endpoints[0], dnsScheme); ok {
		if len(endpoints) > 1 {
			return nil, fmt.Errorf("%s must be the only endpoint; its name stands for all of them", endpoints[0])
		}
		server, address, _ := strings.Cut(rest, "/")
		host, port, err := splitAddress(address)
		if err != nil {
			return nil, err
		}
		if lookup == nil {
			lookup = asking(server).LookupHost
		}
		return &dns{server: server, host: host, port: port, lookup: lookup, log: log}, nil
	}
	for _, e := range endpoints {
		if _, _, err := splitAddress(e); err != nil {
			return nil, err
		}
	}
	return static(normal(endpoints)), nil
}

// asking is a resolver that asks the DNS server at host:port; "" is the system's own.
func asking(server string) *net.Resolver {
	if server == "" {
		return net.DefaultResolver
	}
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, server)
	}}
}

func splitAddress(a string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(a)
	if err != nil || host == "" || port == "" || len(host) > maxHostName || strings.Contains(a, "/") {
		return "", "", fmt.Errorf("endpoint %q is not host:port or dns:///host:port", a)
	}
	return host, port, nil
}

// normal sorts addresses and drops doubles, so that a change of order is no change.
func normal(addresses []string) []string {
	a := slices.Clone(addresses)
	slices.Sort(a)
	a = slices.Compact(a)
	return a[:min(len(a), maxEndpoints)]
}

// static is a list that never changes.
type static []string

func (s static) Watch(ctx context.Context, again <-chan struct{}, set func([]string)) {
	set(s)
	for {
		select {
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

func (s static) String() string { return strings.Join(s, ", ") }

// dns looks a name up every dnsEvery, and earlier when asked.
type dns struct {
	server     string // that is asked; "" is the system's own resolver
	host, port string
	lookup     func(ctx context.Context, host string) ([]string, error)
	log        *slog.Logger
}

func (d *dns) String() string { return dnsScheme + d.server + "/" + net.JoinHostPort(d.host, d.port) }

func (d *dns) Watch(ctx context.Context, again <-chan struct{}, set func([]string)) {
	var last []string
	var out outage
	for ctx.Err() == nil {
		found, err := d.look(ctx)
		if ctx.Err() != nil {
			return
		}
		out.tell(d, err)
		if err == nil && !slices.Equal(found, last) {
			last = found
			set(found)
		}
		soonest := time.NewTimer(dnsSoonest)
		select {
		case <-soonest.C:
		case <-ctx.Done():
			soonest.Stop()
			return
		}
		due := time.NewTimer(dnsEvery - dnsSoonest)
		select {
		case <-due.C:
		case <-again:
		case <-ctx.Done():
		}
		due.Stop()
	}
}

// outage is a time in which a name cannot be looked up.
type outage struct{ since, told time.Time }

// tell logs how looking d up went: a failure at once and then every dnsWarn, and the end of failing.
func (o *outage) tell(d *dns, err error) {
	now := time.Now()
	switch {
	case err == nil && !o.since.IsZero():
		d.log.Info("the endpoints' name can be looked up again", "endpoints", d.String(), "out_for", now.Sub(o.since))
		*o = outage{}
	case err == nil:
	case o.since.IsZero():
		o.since = now
		fallthrough
	case now.Sub(o.told) >= dnsWarn:
		o.told = now
		d.log.Warn("the endpoints' name cannot be looked up; the addresses known before stay in use", "endpoints", d.String(), "since", o.since, "error", err)
	}
}

var errNoAddress = errors.New("the name has no address")

// look gives the addresses, at least one, or says why they cannot be had now.
func (d *dns) look(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	hosts, err := d.lookup(ctx, d.host)
	if err != nil {
		return nil, err
	}
	if len(hosts) == 0 {
		return nil, errNoAddress
	}
	addresses := make([]string, 0, len(hosts))
	for _, h := range hosts {
		addresses = append(addresses, net.JoinHostPort(h, d.port))
	}
	return normal(addresses), nil
}
