package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/access"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Limits tells what is left, without taking any.
type Limits interface {
	// Peek gives the tokens left in the buckets that c would draw from for limits, in their order; NaN where there is
	// no telling. It reads c's Model, Caller, User and Address.
	Peek(ctx context.Context, c *inference.Call, limits []*inference.Limit) ([]float64, error)
}

// Explainer explains with the parts that calls go through. Its functions are asked anew for each question, so that
// they follow the configuration.
type Explainer struct {
	// Hash of the configuration in force.
	Hash func() string
	// Model resolves a name.
	Model func(ctx context.Context, name string) (*inference.Model, error)
	// Split chooses c.Target as the stage of that name does, and says what every rule would answer.
	Split func(ctx context.Context, c *inference.Call) ([]inference.Considered, error)
	// Versions is what the readiness table knows of a model on an upstream; nil leaves them out.
	Versions func(upstream, model string) []inference.VersionState
	// Caller finds a declared caller; nil when there is none.
	Caller func(name string) *inference.Caller
	// Required says that callers are authenticated.
	Required func() bool
	// Policy decides on access.
	Policy func() *access.Policy
	// Spanning are the limits that no model has for itself.
	Spanning func() []*inference.Limit
	// Breaker tells how the breaker of a target stands; nil leaves it out.
	Breaker func(t *inference.Target) *Breaker
	// Limits is where buckets are; nil when there are none.
	Limits Limits
	// Defaults are the timeouts of models that say nothing else.
	Defaults func() inference.Timeouts
	// Dynamic is what is known of the timeout of a model's target, Mode, Floor, Factor and Why left out; nil leaves it out.
	Dynamic func(m *inference.Model, t *inference.Target) *Dynamic
}

// Explain answers a question. Its errors are faults about the question itself; a call that would fail is no error.
func (e *Explainer) Explain(ctx context.Context, q Question) (*Report, error) {
	c, err := e.call(q)
	if err != nil {
		return nil, err
	}
	r := &Report{Question: q, Config: e.Hash(), Limits: []Limit{}}
	r.User = e.user(c, q)
	r.Access = e.access(c, q)
	if r.Access.Verdict == Refused {
		r.refuse("authorize", e.Policy().Check(c.Caller, q.Model, inference.Infer))
	}
	if c.Model, err = e.Model(ctx, q.Model); err != nil {
		r.refuse("resolve", err)
		return r, nil
	}
	e.limits(ctx, c, r)
	e.target(ctx, c, r)
	r.Timeout = e.timeout(c)
	r.Fallback = fallbackOf(c)
	r.Served = r.Refusal == nil
	return r, nil
}

// Bounds of a question's fields, in bytes.
const (
	maxName   = 256
	maxUser   = 256
	maxFields = 64 // headers, and keys of metadata
	maxField  = 8 << 10
)

// userHeader and userField name the user, as identify reads them.
const (
	userHeader = "x-user-id"
	userField  = "user_id"
)

func (e *Explainer) call(q Question) (*inference.Call, error) {
	switch {
	case q.Model == "":
		return nil, fault.New(fault.InvalidArgument, "model is missing; name the model that the call would be for")
	case len(q.Model) > maxName || len(q.Caller) > maxName || len(q.Role) > maxName || len(q.User) > maxUser || len(q.Version) > maxName:
		return nil, fault.New(fault.InvalidArgument, "a name has more than %d bytes; no model, caller or user has", maxName)
	}
	c := &inference.Call{Kind: inference.Infer, Start: time.Now(), Head: inference.Head{Model: q.Model, Version: q.Version}}
	if err := fields(c, q); err != nil {
		return nil, err
	}
	if q.Caller != "" {
		if c.Caller = e.Caller(q.Caller); c.Caller == nil {
			return nil, fault.New(fault.InvalidArgument, "no caller %q is declared; use a name from callers, or none", q.Caller)
		}
	}
	if q.Role != "" {
		if c.Caller == nil {
			return nil, fault.New(fault.InvalidArgument, "role %q is nobody's: name the caller whose token carries it", q.Role)
		}
		who := *c.Caller
		who.Roles = []string{q.Role}
		c.Caller = &who
	}
	if q.Address != "" {
		a, err := netip.ParseAddr(q.Address)
		if err != nil {
			return nil, fault.New(fault.InvalidArgument, "address %q is no IP address", q.Address)
		}
		c.Address = a.Unmap().WithZone("")
	}
	return c, nil
}

// fields gives c the metadata of the question.
func fields(c *inference.Call, q Question) error {
	if len(q.Headers) > maxFields || len(q.Metadata) > maxFields {
		return fault.New(fault.InvalidArgument, "there are more than %d headers or keys of metadata", maxFields)
	}
	c.Incoming = make(map[string][]string, len(q.Headers))
	for name, values := range q.Headers {
		size := len(name)
		for _, v := range values {
			size += len(v)
		}
		if name == "" || size > maxField {
			return fault.New(fault.InvalidArgument, "a header has no name, or more than %d bytes", maxField)
		}
		name = strings.ToLower(name)
		c.Incoming[name] = append(c.Incoming[name], values...)
	}
	c.Head.Metadata = make(map[string]string, len(q.Metadata))
	for key, value := range q.Metadata {
		if len(key)+len(value) > maxField {
			return fault.New(fault.InvalidArgument, "metadata has more than %d bytes under one key", maxField)
		}
		c.Head.Metadata[key] = value
	}
	return nil
}

// named gives the user that the question names: as such, or in metadata as a call would.
func named(c *inference.Call, q Question) string {
	switch {
	case q.User != "":
		return q.User
	case c.Head.Metadata[userField] != "" && len(c.Head.Metadata[userField]) <= maxUser:
		return c.Head.Metadata[userField]
	case len(c.Incoming[userHeader]) > 0 && len(c.Incoming[userHeader][0]) <= maxUser:
		return c.Incoming[userHeader][0]
	}
	return ""
}

// user finds the person the call would be for, as identify does.
func (e *Explainer) user(c *inference.Call, q Question) User {
	sent := named(c, q)
	u := User{Name: sent, Why: "as the call names it"}
	switch {
	case !e.Required() || c.Caller == nil || (c.Caller.MayNameUsers && sent != ""):
		if sent == "" {
			u.Why = "the call names nobody; limits per user draw from " + inference.Anonymous
		}
	case sent != "" && sent != c.Caller.Name:
		u = User{c.Caller.Name, fmt.Sprintf("the caller itself: without may_name_users, %q is dropped", sent)}
	default:
		u = User{c.Caller.Name, "the caller itself"}
	}
	if c.User = u.Name; sent != u.Name {
		delete(c.Head.Metadata, userField)
		delete(c.Incoming, userHeader)
	}
	return u
}

func (e *Explainer) access(c *inference.Call, q Question) Access {
	if e.Required() && c.Caller == nil {
		return Access{Verdict: Open, Why: "auth is required, and the question names no caller"}
	}
	d := e.Policy().Explain(c.Caller, q.Model, inference.Infer)
	a := Access{Verdict: Refused, Rule: d.Rule, Why: d.Why}
	if d.Allowed {
		a.Verdict = Allowed
	}
	return a
}

// refuse notes what the call would be refused with; the first one stands.
func (r *Report) refuse(stage string, err error) {
	if f := fault.Of(err); f != nil && r.Refusal == nil {
		r.Refusal = &Refusal{Stage: stage, Reason: f.Kind.Reason(), Code: f.Code().String(), HTTP: f.HTTP(), Message: f.Msg}
	}
}

func (e *Explainer) target(ctx context.Context, c *inference.Call, r *Report) {
	var err error
	if r.Split, err = e.Split(ctx, c); err != nil {
		r.refuse("split", err)
		return
	}
	if m := c.Model.Mirror; m != nil {
		r.Mirror = &Mirror{To: m.To.Name, Percent: m.Percent}
	}
	t := c.Target
	r.Target = &Target{Name: t.Name, Version: t.Version, Upstream: t.Upstream, Model: t.Model, Ready: t.Pool.Ready(), Why: why(c, len(r.Split) > 0)}
	if e.Breaker != nil {
		r.Target.Breaker = e.Breaker(t)
		r.broken(t)
	}
	r.Target.Endpoints = endpointsOf(t)
	if _, err := t.Pool.Pick(c, nil); err != nil { // a pool that is not ready may have endpoints to try all the same
		r.refuse("forward", err)
	}
	if c.Model.Stable == nil && e.Versions != nil {
		for _, v := range e.Versions(t.Upstream, t.Model) {
			if v.Version != t.Version {
				r.Target.Others = append(r.Target.Others, Version{v.Version, state(v)})
			}
		}
		slices.SortFunc(r.Target.Others, func(a, b Version) int {
			return cmp.Or(cmp.Compare(len(a.Version), len(b.Version)), cmp.Compare(a.Version, b.Version))
		})
	}
}

// endpointsOf says how much room the endpoints of t have; nil where any number of calls may be under way.
func endpointsOf(t *inference.Target) *Endpoints {
	pool, ok := t.Pool.(inference.Roomy)
	if !ok {
		return nil
	}
	limit, serving, full := pool.Room()
	if limit == 0 || serving == 0 {
		return nil
	}
	return &Endpoints{Serving: serving, MaxInFlight: limit, Full: full}
}

// broken notes that the breaker of t would keep the call from it. Without an endpoint the fault is the pool's to tell.
func (r *Report) broken(t *inference.Target) {
	b := r.Target.Breaker
	if b == nil || b.State != "open" || b.Why == "no_endpoint" {
		return
	}
	r.refuse("breaker", fault.New(fault.CircuitOpen, "target %q gets no calls now: %s", t.Name, b.words()))
}

// words say how the breaker stands and why.
func (b *Breaker) words() string {
	text := "its breaker is " + b.State
	switch {
	case b.Forced != "":
		return text + ", forced by " + b.Forced
	case b.State == "closed":
		text += fmt.Sprintf("; of the latest %d calls %d failed", b.Calls, b.Failures)
		if b.Slow > 0 {
			text += fmt.Sprintf(" and %d were slow", b.Slow)
		}
		return text
	case b.State == "half-open":
		return text + ": a few calls find out whether it is back, the others are refused"
	}
	text += map[string]string{
		"failures": ", since " + of(b.Failures, b.Calls, "failed"), "slow": ", since " + of(b.Slow, b.Calls, "were slow"), "no_endpoint": ", since no endpoint can serve the target",
	}[b.Why]
	if b.Until != nil {
		text += fmt.Sprintf(", for another %s", max(time.Until(*b.Until), 0).Round(time.Second))
	}
	return text
}

func of(n, all uint32, what string) string {
	if all == 0 {
		return "calls that were to find out whether it is back " + what
	}
	return fmt.Sprintf("%d of %d calls %s", n, all, what)
}

// why says in words how the call comes to its target; split tells that rules or a script were asked.
func why(c *inference.Call, split bool) string {
	switch c.Choice.By {
	case inference.ByPinned:
		return "the call names the version itself"
	case inference.ByStable, "":
		return stableWhy(c, split)
	case inference.ByScript:
		if c.Choice.Reason != "" {
			return fmt.Sprintf("script %s chose it: %s", c.Choice.Rule, c.Choice.Reason)
		}
		return fmt.Sprintf("script %s chose it", c.Choice.Rule)
	}
	return fmt.Sprintf("rule %q of the model's split chose it", c.Choice.Rule)
}

func stableWhy(c *inference.Call, split bool) string {
	text := "the highest version that was ready on every endpoint; it is held until a newer one has been, or this one is unloaded"
	switch {
	case c.Model.Stable != nil:
		text = "it is the model's stable target"
	case c.Target.Version == "":
		text = "the upstream has no versions"
	case split:
		text = "it is the lowest version that the upstream has, which is stable where rules or a script split calls"
	}
	if c.Choice.Reason != "" {
		return text + "; " + c.Choice.Reason
	}
	return text
}

// state says of a version why it is not the one, as far as readiness goes.
func state(v inference.VersionState) string {
	age := ""
	if !v.Since.IsZero() {
		age = " for " + time.Since(v.Since).Round(time.Second).String()
	}
	switch {
	case v.Unloaded:
		return "unloaded" + age
	case v.Everywhere:
		return "ready on every endpoint" + age
	case v.Anywhere:
		return "ready on some endpoints"
	}
	return "not ready"
}

// limits lists the buckets of a call, those of its model first.
func (e *Explainer) limits(ctx context.Context, c *inference.Call, r *Report) {
	all := slices.Concat(c.Model.Limits, e.Spanning())
	counted := slices.DeleteFunc(slices.Clone(all), func(l *inference.Limit) bool { return l.Mode == inference.Off })
	left, err := e.peek(ctx, c, counted)
	if err != nil {
		r.Notes = append(r.Notes, "what is left could not be read: "+err.Error())
	}
	for _, l := range all {
		subject := subjectOf(l.Per, c)
		rate, own := l.Overrides[subject]
		own = own && overridable(l.Per)
		if !own {
			rate = l.Rate
		}
		shown := Limit{
			Name: l.Name, Per: l.Per.String(), Subject: subject, Rate: rate.PerSecond, Burst: rate.Burst,
			Cost: l.Cost.String(), Mode: l.Mode.String(), Draw: l.Draw.String(), Override: own,
		}
		i := slices.Index(counted, l)
		switch {
		case i < 0:
			shown.Note = "off: nothing is counted"
		case err != nil:
			shown.Note = "not known"
		case math.IsNaN(left[i]):
			shown.Note = "not known: " + missing(l.Per, c)
		default:
			shown.Left = &left[i]
			if l.Mode == inference.Enforce && left[i] < 1 {
				r.refuse("limit", fault.New(fault.RateLimited, "limit %q has no token left for a call", l.Name))
			}
		}
		r.Limits = append(r.Limits, shown)
	}
}

func (e *Explainer) peek(ctx context.Context, c *inference.Call, limits []*inference.Limit) ([]float64, error) {
	if len(limits) == 0 {
		return nil, nil
	}
	if e.Limits == nil {
		return nil, errors.New("this gateway keeps no buckets")
	}
	left, err := e.Limits.Peek(ctx, c, limits)
	if err == nil && len(left) != len(limits) {
		err = fmt.Errorf("%d buckets were asked for, %d answered", len(limits), len(left))
	}
	return left, err
}

// overridable reports whether the file may give single names a rate of their own.
func overridable(p inference.Per) bool {
	return p == inference.PerUser || p == inference.PerModelCaller || p == inference.PerCaller
}

// subjectOf says whose bucket a call draws from.
func subjectOf(p inference.Per, c *inference.Call) string {
	switch p {
	case inference.PerUser:
		return cmp.Or(c.User, inference.Anonymous)
	case inference.PerModelCaller, inference.PerCaller:
		return cmp.Or(c.CallerName(), inference.Anonymous)
	case inference.PerIP:
		if c.Address.Is6() { // whoever has one has the whole /64
			return netip.PrefixFrom(c.Address, 64).Masked().String()
		}
		if c.Address.IsValid() {
			return c.Address.String()
		}
		return "any"
	case inference.PerGlobal:
		return "all"
	case inference.PerModel:
	}
	return c.Model.Name
}

// missing says why there is no telling what is left.
func missing(p inference.Per, c *inference.Call) string {
	switch {
	case p == inference.PerIP && !c.Address.IsValid():
		return "the question names no address"
	case (p == inference.PerCaller || p == inference.PerModelCaller) && c.Caller == nil:
		return "the question names no caller"
	}
	return "nobody could tell"
}

// rate writes a rate in the unit in which it is a whole number, as the file would.
func rate(perSecond float64) string {
	for _, u := range []struct {
		seconds float64
		name    string
	}{{1, "s"}, {60, "min"}, {3600, "h"}} {
		if n := perSecond * u.seconds; n >= 1 && math.Abs(n-math.Round(n)) < 1e-9*n {
			return strconv.FormatFloat(math.Round(n), 'f', -1, 64) + "/" + u.name
		}
	}
	return strconv.FormatFloat(perSecond, 'g', 4, 64) + "/s"
}
