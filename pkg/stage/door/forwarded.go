package door

import (
	"net/netip"
	"strings"
)

// maxHops is how many proxies may stand between a client and the gateway.
const maxHops = 32

// behind is the client's address as trusted proxies tell it: by X-Forwarded-For, by Forwarded (RFC 7239), or by both if they agree.
func behind(trusted []netip.Prefix, peer netip.Addr, forwardedFor, forwarded []string) netip.Addr {
	switch {
	case len(forwardedFor) > 0 && len(forwarded) > 0:
		// A client may have written the one that the proxies do not know, so neither is believed against the other.
		a := walk(trusted, peer, forwardedFor, hop)
		if walk(trusted, peer, forwarded, element) == a {
			return a
		}
		return peer
	case len(forwardedFor) > 0:
		return walk(trusted, peer, forwardedFor, hop)
	case len(forwarded) > 0:
		return walk(trusted, peer, forwarded, element)
	}
	return peer
}

// walk goes through the list from its end to the first address that is no trusted proxy; if all are, to the first of
// the list. What cannot be read ends it at peer.
func walk(trusted []netip.Prefix, peer netip.Addr, lines []string, read func(string) (netip.Addr, bool)) netip.Addr {
	var last netip.Addr
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		rest, more := lines[i], true
		for more {
			var part string
			rest, part, more = cutLast(rest)
			a, ok := read(strings.TrimSpace(part))
			if hops++; !ok || hops > maxHops {
				return peer
			}
			if !contains(trusted, a) {
				return a
			}
			last = a
		}
	}
	if last.IsValid() {
		return last
	}
	return peer
}

// cutLast cuts the last element off a list with commas; commas in quotes count too, since no address has one.
func cutLast(list string) (rest, last string, more bool) {
	i := strings.LastIndexByte(list, ',')
	if i < 0 {
		return "", list, false
	}
	return list[:i], list[i+1:], true
}

// hop reads an address as X-Forwarded-For has it: bare, or with a port.
func hop(s string) (netip.Addr, bool) {
	if len(s) > 64 {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(inner, "]") {
			a, err = netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		} else {
			var at netip.AddrPort
			at, err = netip.ParseAddrPort(s)
			a = at.Addr()
		}
	}
	return a.Unmap().WithZone(""), err == nil
}

// element reads the for= of an element of Forwarded.
func element(s string) (netip.Addr, bool) {
	for pair := range strings.SplitSeq(s, ";") {
		name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if ok && strings.EqualFold(name, "for") {
			return hop(strings.Trim(value, `"`))
		}
	}
	return netip.Addr{}, false
}
