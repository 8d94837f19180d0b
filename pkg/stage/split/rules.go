package split

import (
	"context"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// answer is what a rule says to a call. Without a target and without final, the next rule is asked; choice.Reason says why.
type answer struct {
	target *inference.Target
	final  bool // no further rule is asked: the stable target serves
	choice inference.Choice
}

// byRules asks the rules in order, or the script that the model has by its name.
func (s *Stage) byRules(ctx context.Context, c *inference.Call, script string) answer {
	if script != "" {
		return s.byScript(ctx, c, script, s.Scripts.Decide)
	}
	var because string
	for i := range c.Model.Split {
		a := s.ask(ctx, c, &c.Model.Split[i], false)
		if a.target != nil || a.final {
			return a
		}
		if a.choice.Reason != "" {
			because = a.choice.Reason
		}
	}
	return answer{choice: inference.Choice{Reason: because}}
}

// ask asks one rule. A question leaves no trace.
func (s *Stage) ask(ctx context.Context, c *inference.Call, r *inference.Rule, question bool) answer {
	if r.Match != nil && !r.Match.Meets(c) {
		return answer{}
	}
	var a answer
	switch {
	case r.Script != "":
		run := s.runner(question)
		if run == nil {
			return answer{final: true, choice: inference.Choice{Reason: "scripts are not served here"}}
		}
		a = s.byScript(ctx, c, r.Script, run)
	case len(r.Weights) > 0:
		a = byWeights(c, r)
	default:
		a = to(c.Model, r.To)
		a.choice.By = by(r)
	}
	if a.choice.Rule == "" {
		a.choice.Rule = r.Name
	}
	a.choice.SetHeaders = r.SetHeaders
	return a
}

// to gives a target that a rule names. Versions of a model without declared targets come and go: one that is not there now
// is no answer.
func to(m *inference.Model, t *inference.Target) answer {
	if m.Stable != nil {
		return answer{target: t}
	}
	if there := m.Named(t.Name); there != nil {
		return answer{target: there}
	}
	return answer{choice: inference.Choice{Reason: t.Name + " is not on the upstream now"}}
}

// byWeights places the user, or where the call names none, the request.
func byWeights(c *inference.Call, r *inference.Rule) answer {
	key := c.User
	if key == "" {
		key = c.RequestID
	}
	hash := inference.Hash(key, r.Salt)
	for i := range r.Weights {
		if w := &r.Weights[i]; w.Holds(hash) {
			a := to(c.Model, w.Target)
			a.choice.By = inference.ByWeights
			a.choice.Bucket = uint16(uint64(hash) * 1000 >> 32)
			return a
		}
	}
	return answer{}
}

// by says what a rule decides by, as Choice.By.
func by(r *inference.Rule) string {
	switch {
	case r.Script != "":
		return inference.ByScript
	case len(r.Weights) > 0:
		return inference.ByWeights
	case r.Match != nil:
		return r.Match.By()
	}
	return inference.ByAlways
}

type run func(ctx context.Context, model, script string, c *inference.Call) (target, reason string, opinion bool)

func (s *Stage) runner(question bool) run {
	if s.Scripts == nil {
		return nil
	}
	if t, ok := s.Scripts.(Trier); ok && question {
		return t.Try
	}
	return s.Scripts.Decide
}

// byScript runs a script. Whatever it answers that is no target means the stable one.
func (s *Stage) byScript(ctx context.Context, c *inference.Call, script string, run run) answer {
	name, reason, opinion := run(ctx, c.Model.Name, script, c)
	a := answer{final: opinion, choice: inference.Choice{By: inference.ByScript, Rule: script, Reason: reason}}
	switch {
	case !opinion:
		return a
	case name == "":
		a.choice.Reason = scriptSays(script) + reason
		return a
	}
	if a.target = c.Model.Named(name); a.target == nil {
		a.choice.Reason = scriptSays(script) + clip(name) + " is no target now"
	}
	return a
}

// scriptSays begins the reason for which a script sends a call nowhere.
func scriptSays(script string) string { return "script " + script + ": " }

// clip keeps what a script made up short enough for a log line.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
