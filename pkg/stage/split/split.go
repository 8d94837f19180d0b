// Package split decides which target answers a call: the version that the caller pins, else the target that the call's
// sequence has begun with, else what the first of the model's rules says that has an answer, else its stable target. Every
// call leaves with a version pinned, so that a version that becomes ready on the upstream takes no traffic by itself.
//
// No rule can fail a call: a script that breaks down or answers nonsense leaves it to the stable target. Models
// without rules pay nothing for those that have some, and conditions and weights allocate nothing.
package split

import (
	"context"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Scripts answers for rules that are scripts. pkg/scripts has the implementation.
type Scripts interface {
	// Has reports whether there is a script of that name: also one that cannot run, since a model whose script is broken
	// is split all the same. It is asked for every call to a model without declared targets.
	Has(name string) bool
	// Decide runs a script for c. Without an opinion the next rule decides; an opinion without a target means the stable
	// one, which is also what a run that failed comes to, and reason says why.
	Decide(ctx context.Context, model, script string, c *inference.Call) (target, reason string, opinion bool)
}

// Trier is what a Scripts may offer for questions: Try is Decide, and leaves no trace in counts and records.
type Trier interface {
	Try(ctx context.Context, model, script string, c *inference.Call) (target, reason string, opinion bool)
}

// Counter counts choices; telemetry.Metrics is one.
type Counter interface {
	// SplitChose counts a call that rules sent to t, or left to it. by is Choice.By.
	SplitChose(t *inference.Target, by string)
}

// Stage chooses targets. The zero Stage has no scripts and counts nothing. It must not be copied once it is used.
type Stage struct {
	Scripts Scripts // nil: a rule that is a script has no answer
	Counts  Counter // nil: nothing is counted
	Records Records // of sequences; nil: each replica knows its own

	sequences sequences
}

// Wrap sets c.Target, c.Pinned and c.Choice.
func (s *Stage) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		version, ok := inference.ParseVersion(c.Head.Version)
		if !ok {
			return fault.NotAVersion(c.Head.Version)
		}
		script := s.scriptOf(c.Model)
		if c.Head.Sequence.ID != "" && (version == "" || s.Records != nil) {
			return s.sequence(ctx, c, version, script, next)
		}
		if err := unanswered(c, s.choose(ctx, c, version, script)); err != nil {
			return err
		}
		s.count(c, script)
		return next(ctx, c)
	}
}

// choose chooses for a call that stands alone.
func (s *Stage) choose(ctx context.Context, c *inference.Call, version, script string) (err error) {
	m := c.Model
	if version != "" {
		c.Pinned, c.Choice = true, inference.Choice{By: inference.ByPinned}
		c.Target, err = m.Pin(ctx, version)
		return err
	}
	var because string // the rules had no answer
	if len(m.Split) > 0 || script != "" {
		a := s.byRules(ctx, c, script)
		if a.target != nil {
			c.Target, c.Choice = a.target, a.choice
			return nil
		}
		because = a.choice.Reason
	}
	c.Choice = inference.Choice{By: inference.ByStable, Reason: because}
	if m.Stable != nil {
		c.Target = m.Stable
		return nil
	}
	c.Target, err = m.Choose(ctx)
	return err
}

// unanswered lets a call go on whose target cannot be told because its upstream does not answer: what is further in may
// have an answer in the model's place.
func unanswered(c *inference.Call, err error) error {
	if err == nil || c.Model.Fallback == nil || !fault.Of(err).Kind.Row().Outage {
		return err
	}
	c.Target = inference.Nowhere(c.Model.Name, err)
	return nil
}

// scriptOf names the script that m has by its name; "" when it has none.
func (s *Stage) scriptOf(m *inference.Model) string {
	if !m.Scripted || s.Scripts == nil {
		return ""
	}
	return ScriptOf(s.Scripts.Has, m.Name)
}

// ScriptOf names the script that splits the calls of a model without declared targets and rules: its own, else the default.
// "" when there is none. The name must be one that scripts can have.
func ScriptOf(has func(name string) bool, model string) string {
	if has(model) {
		return model
	}
	if has(inference.DefaultScript) {
		return inference.DefaultScript
	}
	return ""
}

func (s *Stage) count(c *inference.Call, script string) {
	if s.Counts != nil && c.Target.Absent == nil && (len(c.Model.Split) > 0 || script != "") {
		s.Counts.SplitChose(c.Target, c.Choice.By)
	}
}
