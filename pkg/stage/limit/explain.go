package limit

import (
	"context"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// BucketState is a bucket as `gateway explain` shows it.
type BucketState struct {
	Name      string // of the limit
	Per       inference.Per
	Subject   string         // whose bucket: "user:ann"
	Rate      inference.Rate // of this bucket, overrides applied
	Cost      inference.Cost
	Mode      inference.Mode
	Draw      inference.Draw
	WhenDown  inference.WhenDown
	Remaining float64 // tokens, those that this replica has leased included
	Source    telemetry.Source
}

// Explain says which buckets a call would draw from and what they hold, in the order in which they are asked, and takes
// nothing. It reads the call's Model, Caller, User, and Address; without an Address limits per IP are left out.
func (s *Stage) Explain(ctx context.Context, c *inference.Call) []BucketState {
	var states []BucketState
	if c.Address.IsValid() {
		for _, l := range s.spanning.Load().door {
			states = append(states, s.explain(ctx, l, "", c))
		}
	}
	for _, l := range c.Model.Limits {
		states = append(states, s.explain(ctx, l, c.Model.Name, c))
	}
	for _, l := range s.spanning.Load().stage {
		states = append(states, s.explain(ctx, l, "", c))
	}
	return states
}

func (s *Stage) explain(ctx context.Context, l *inference.Limit, model string, c *inference.Call) BucketState {
	n := nameOf(l, model, c)
	a := s.accounts.find(n)
	if a == nil { // asking makes no account
		a = &account{subject: n.subject, key: keyOf(n)}
		a.use(l)
	}
	state := BucketState{
		Name: l.Name, Per: l.Per, Subject: shown(l.Per, model, n.subject), Rate: rateOf(l, n.subject), Cost: l.Cost, Mode: l.Mode, Draw: l.Draw, WhenDown: l.WhenDown,
	}
	part := divide(state.Rate, s.share())
	a.mu.Lock()
	balance := a.balance
	state.Source = a.source(l, s.alone, s.share())
	state.Remaining = max(a.shareLeft(part, s.now()), 0)
	a.mu.Unlock()
	if s.alone && l.Per.Spans() || state.Source == telemetry.SourceLocal {
		return state
	}
	draws := []Draw{{Key: a.key, Rate: state.Rate}}
	if s.alone {
		draws[0].Rate = part
	}
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if _, err := s.store.Peek(limited, draws); err != nil {
		state.Source = telemetry.SourceLocal
		return state
	}
	state.Remaining = max(draws[0].Left+balance, 0)
	return state
}

// source is where the next decision will come from. The account is locked.
func (a *account) source(l *inference.Limit, alone bool, peers float64) telemetry.Source {
	switch {
	case alone, l.Draw == inference.DrawExact && !l.Per.Spans():
		return telemetry.SourceExact
	case a.balance > 0:
		return telemetry.SourceLeased
	case a.failing, (l.Per.Spans() || l.Draw == inference.DrawLease) && a.most(peers) < 1:
		return telemetry.SourceLocal
	case l.Per.Spans(), l.Draw == inference.DrawLease:
		return telemetry.SourceLeased
	}
	return telemetry.SourceExact
}
