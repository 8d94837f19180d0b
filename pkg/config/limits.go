package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// maxFill is how many seconds a bucket may take to fill: a month, and stores keep it no longer.
const maxFill = 30 * 24 * 3600

// limits compiles a section `limits`: the one over all models where m is nil, else m's.
func (c *compiler) limits(path string, files []LimitFile, m *Model) []*inference.Limit {
	var all []*inference.Limit
	first := make(map[[2]uint8]string)
	for i := range files {
		at := fmt.Sprintf("%s[%d]", path, i)
		if c.mistaken(at) {
			continue
		}
		l := c.limit(at, &files[i], m)
		if l == nil {
			continue
		}
		key := [2]uint8{uint8(l.Per), uint8(l.Cost)}
		if other, ok := first[key]; ok && !c.mistaken(at+".cost") {
			c.check(at, fmt.Errorf("is per %s at the same cost as %s, so two rules would speak of one thing; make one of them", cmp.Or(files[i].Per, l.Per.String()), other))
			continue
		}
		first[key] = at
		c.limitName(at, l, &files[i], m)
		all = append(all, l)
	}
	return all
}

// limit compiles one limit; nil when it is not even clear what it is per.
func (c *compiler) limit(at string, f *LimitFile, m *Model) *inference.Limit {
	per, ok := c.per(at+".per", f.Per, m)
	if !ok {
		return nil
	}
	l := &inference.Limit{
		Per:      per,
		Mode:     named(f.Mode, inference.Off, inference.Enforce),
		Draw:     named(f.Draw, inference.DrawLease, inference.DrawAuto),
		WhenDown: named(f.WhenDown, inference.DownClosed, c.whenDown),
	}
	if c.has(at+".cost") && !c.mistaken(at+".cost") {
		cost, err := f.Cost.parse()
		c.check(at+".cost", err)
		l.Cost = cost
	}
	if per == inference.PerIP && l.Cost != inference.CostOne {
		c.check(at+".cost", errors.New("must be 1 for a limit per ip, which is drawn before the message is looked at"))
	}
	if per.Spans() {
		if l.Draw == inference.DrawExact {
			c.check(at+".draw", errors.New("must be lease: limits over all models are always drawn ahead of use; remove it"))
		}
		l.Draw = inference.DrawLease
	}
	if !c.has(at + ".rate") {
		c.check(at+".rate", errors.New("must be given, such as 20/s, 500/min or 1000/h"))
		return l
	}
	l.Rate = c.rate(at, f, l.Cost, m)
	l.Overrides = c.overrides(at+".overrides", f, l, m)
	if l.Cost == inference.CostRows && l.Mode != inference.Off {
		c.rowsNote(at, m)
	}
	return l
}

// per says what a limit has buckets for: what a model's may be, and what one over all models may.
func (c *compiler) per(at, name string, m *Model) (inference.Per, bool) {
	choices := []inference.Per{inference.PerIP, inference.PerCaller, inference.PerGlobal}
	if m != nil {
		choices = []inference.Per{inference.PerModel, inference.PerUser, inference.PerModelCaller}
	}
	var names []string
	for _, p := range choices {
		word := p.String()
		if p == inference.PerModelCaller {
			word = inference.PerCaller.String()
		}
		if name == word {
			if word == "caller" && len(c.cfg.Callers) == 0 {
				c.check(at, errors.New("is caller, and none are declared, so all calls would share one bucket; declare callers, or limit something else"))
			}
			return p, true
		}
		names = append(names, word)
	}
	switch {
	case name == "":
		c.check(at, fmt.Errorf("must be given: %s", oneOf(names)))
	case m == nil:
		c.check(at, fmt.Errorf("must be %s here, over all models; a limit per %s stands in the model's own limits", oneOf(names), clip(name)))
	default:
		c.check(at, fmt.Errorf("must be %s here, in a model; a limit per %s stands in the limits at the top of the file", oneOf(names), clip(name)))
	}
	return 0, false
}

// rate compiles rate and burst of a limit.
func (c *compiler) rate(at string, f *LimitFile, cost inference.Cost, m *Model) inference.Rate {
	perSecond := setting(c, at+".rate", f.Rate, "", 0, Rate.parse)
	if perSecond == 0 {
		return inference.Rate{}
	}
	least := leastCost(cost, m)
	r := inference.Rate{PerSecond: perSecond, Burst: max(math.Ceil(perSecond), least)}
	field := at + ".rate"
	if c.has(at + ".burst") {
		if c.mistaken(at + ".burst") {
			return r
		}
		field, r.Burst = at+".burst", float64(f.Burst)
		switch {
		case f.Burst < 1:
			c.wrong(field, "must be at least 1: it is what the bucket holds")
			return r
		case r.Burst < least:
			c.wrong(field, "is below the cost of one call, %.0f by the model's tensors, so every call would be refused; write at least that", least)
			return r
		}
	}
	if fill := r.Burst / perSecond; fill > maxFill {
		c.check(field, fmt.Errorf("makes a bucket of %.0f that takes %.0f days to fill; at most %d", r.Burst, fill/(24*3600), maxFill/(24*3600)))
	}
	return r
}

// leastCost is what a call of a model costs at least, as far as its declared tensors tell.
func leastCost(cost inference.Cost, m *Model) float64 {
	if cost == inference.CostOne || m == nil || m.Tensors == nil || len(m.Tensors.Inputs) == 0 {
		return 1
	}
	if cost == inference.CostRows {
		if shape := m.Tensors.Inputs[0].Shape; len(shape) > 0 && shape[0] > 1 {
			return float64(shape[0])
		}
		return 1
	}
	var bytes float64
	for _, in := range m.Tensors.Inputs {
		size := float64(max(inference.DatatypeSize(in.Datatype), 1))
		for _, d := range in.Shape {
			size *= float64(max(d, 1))
		}
		bytes += size
	}
	return max(math.Ceil(bytes/1024), 1)
}

// overrides compiles the rates of single users, callers or addresses. Burst is as many seconds of the rate as the limit's
// own, where the file gives one.
func (c *compiler) overrides(at string, f *LimitFile, l *inference.Limit, m *Model) map[string]inference.Rate {
	if len(f.Overrides) == 0 {
		return nil
	}
	if l.Per == inference.PerModel || l.Per == inference.PerGlobal {
		c.check(at, fmt.Errorf("has nothing to override: a limit per %s has one bucket; remove it", l.Per))
		return nil
	}
	least := leastCost(l.Cost, m)
	all := make(map[string]inference.Rate, len(f.Overrides))
	for _, name := range c.order[at] {
		path := join(at, name)
		key, err := c.overridden(l.Per, name)
		if err != nil && !c.mistaken(path) {
			c.bad(c.at(path).key, path, "%s", err)
		}
		if _, twice := all[key]; twice && err == nil {
			c.bad(c.at(path).key, path, "is the same address as one before it; of IPv6, all of a /64 are")
		}
		perSecond := setting(c, path, f.Overrides[name], "", 0, Rate.parse)
		if perSecond == 0 {
			c.check(path, errors.New("must be a rate, such as 200/s"))
			continue
		}
		r := inference.Rate{PerSecond: perSecond, Burst: max(math.Ceil(perSecond), least)}
		if f.Burst > 0 && l.Rate.PerSecond > 0 {
			r.Burst = max(math.Ceil(l.Rate.Burst*perSecond/l.Rate.PerSecond), least)
		}
		if r.Burst/perSecond > maxFill+1 {
			c.check(path, fmt.Errorf("makes a bucket that takes more than %d days to fill", maxFill/(24*3600)))
		}
		all[key] = r
	}
	return all
}

// overridden gives the name under which a limit knows what it is per.
func (c *compiler) overridden(per inference.Per, name string) (string, error) {
	switch per {
	case inference.PerIP:
		return addressOverride(name)
	case inference.PerUser:
		if name == "" || len(name) > maxModelName || strings.ContainsFunc(name, isControl) {
			return "", fmt.Errorf("must be a user's name, of at most %d bytes", maxModelName)
		}
		return name, nil
	default:
		return name, c.knownCaller(name)
	}
}

// addressOverride gives an address as the limit sees it: of IPv6 the /64, of which whoever has one address has all.
func addressOverride(name string) (string, error) {
	addr, err := netip.ParseAddr(name)
	if p, perr := netip.ParsePrefix(name); perr == nil && p.Bits() == 64 && p == p.Masked() {
		addr, err = p.Addr(), nil
	}
	if err != nil || addr.Zone() != "" {
		return "", errors.New("must be an address, such as 192.0.2.7 or 2001:db8::7: the limit is per ip")
	}
	if addr = addr.Unmap(); addr.Is4() {
		return addr.String(), nil
	}
	return netip.PrefixFrom(addr, 64).Masked().String(), nil
}

// limitName gives a limit a name that no other has.
func (c *compiler) limitName(at string, l *inference.Limit, f *LimitFile, m *Model) {
	l.Name = "per-" + cmp.Or(f.Per, l.Per.String())
	if l.Cost != inference.CostOne {
		l.Name += "-" + l.Cost.String()
	}
	if m != nil {
		l.Name = m.Name + "/" + l.Name
	}
	stated := c.has(at + ".name")
	if stated {
		l.Name = f.Name
		c.check(at+".name", checkName(f.Name))
	}
	other, taken := c.limitNames[l.Name]
	if !taken {
		c.limitNames[l.Name] = limitAt{at, stated}
		return
	}
	if stated || other.stated { // else two models have one name, which is told already
		c.check(at+".name", fmt.Errorf("%s is the name of %s already; give one of them another", clip(l.Name), other.path))
	}
}

// limitAt is where a limit stands, and whether it says its name itself.
type limitAt struct {
	path   string
	stated bool
}

// rowsNote tells where rows cannot be counted.
func (c *compiler) rowsNote(at string, m *Model) {
	unknown := m != nil && m.Tensors.RowBytes() == 0
	if m == nil {
		unknown = c.cfg.Passthrough || slices.ContainsFunc(c.cfg.Models, func(o Model) bool { return o.Tensors.RowBytes() == 0 })
	}
	if unknown {
		c.note("%s counts rows: a Predict call of a model without declared tensors of a fixed row size counts as one row", at)
	}
}
