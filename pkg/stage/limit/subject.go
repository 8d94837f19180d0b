package limit

import (
	"net/netip"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// unknownAddress is the bucket of calls whose address nobody knows; they share one.
const unknownAddress = "unknown"

// subjectOf says whose bucket a call draws from; "" where there is one for all.
func subjectOf(per inference.Per, c *inference.Call) string {
	switch per {
	case inference.PerUser:
		return named(c.User)
	case inference.PerModelCaller, inference.PerCaller:
		return named(c.CallerName())
	case inference.PerIP:
		return addressOf(c.Address)
	case inference.PerModel, inference.PerGlobal:
	}
	return ""
}

// nameOf names the bucket that l has for c. Users may be called like callers, and share nothing with them.
func nameOf(l *inference.Limit, model string, c *inference.Call) name {
	return name{limit: l.Name, model: model, subject: subjectOf(l.Per, c), own: l.Per == inference.PerUser && c.OwnUser}
}

func named(who string) string {
	if who == "" {
		return inference.Anonymous
	}
	return who
}

// addressOf takes IPv6 by its /64, the least that a network hands out: whoever has one has all of it.
func addressOf(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return unknownAddress
	case a.Is6() && !a.Is4In6():
		return netip.PrefixFrom(a.WithZone(""), 64).Masked().String()
	}
	return a.Unmap().String()
}

// keyOf is the key of a bucket in the store.
func keyOf(n name) string {
	base := SpanningBase(n.limit)
	if n.model != "" {
		base = ModelBase(n.model, n.limit)
	}
	if n.subject == "" {
		return base.Key()
	}
	if n.own {
		return base.ForCaller(n.subject)
	}
	return base.For(n.subject)
}

// shown names a bucket to those who may know of it: its own user, caller or address.
func shown(per inference.Per, model, subject string) string {
	switch per {
	case inference.PerModel:
		return "model:" + model
	case inference.PerUser:
		return "user:" + subject
	case inference.PerModelCaller, inference.PerCaller:
		return "caller:" + subject
	case inference.PerIP:
		return "ip:" + subject
	case inference.PerGlobal:
	}
	return "global"
}
