package split

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Explain chooses for c as Wrap does for a call that belongs to no sequence, and says what every rule would answer, those
// behind the one that decides too. It counts nothing and remembers nothing.
func (s *Stage) Explain(ctx context.Context, c *inference.Call) ([]inference.Considered, error) {
	version, ok := inference.ParseVersion(c.Head.Version)
	if !ok {
		return nil, fault.NotAVersion(c.Head.Version)
	}
	rules := c.Model.Split
	if script := s.scriptOf(c.Model); script != "" {
		rules = []inference.Rule{{Name: "script " + script, Script: script}}
	}
	var all []inference.Considered
	decided, because := version != "", ""
	for i := range rules {
		r := &rules[i]
		a := s.ask(ctx, c, r, true)
		said := inference.Considered{Rule: r.Name, By: by(r), Why: why(c, r, a)}
		if a.target != nil {
			said.Target = a.target.Name
		}
		if !decided && (a.target != nil || a.final) {
			decided, said.Decides = true, true
			c.Target, c.Choice = a.target, a.choice
		}
		if !decided && a.choice.Reason != "" {
			because = a.choice.Reason
		}
		if said.Decides && a.target == nil {
			because = a.choice.Reason
		}
		all = append(all, said)
	}
	if c.Target != nil {
		return all, nil
	}
	if version != "" {
		return all, s.choose(ctx, c, version, "")
	}
	c.Choice = inference.Choice{By: inference.ByStable, Reason: because}
	if c.Target = c.Model.Stable; c.Target != nil {
		return all, nil
	}
	var err error
	c.Target, err = c.Model.Choose(ctx)
	return all, err
}

// subject says what the call has of that which a condition is on.
func subject(c *inference.Call, m *inference.Match) string {
	var values []string
	what := "the user"
	switch {
	case m.Header != "":
		what, values = "header "+m.Header, c.Incoming[m.Header]
	case m.Field != "":
		what = "metadata " + m.Field
		if v, ok := c.Head.Metadata[m.Field]; ok {
			values = []string{v}
		}
	case m.User:
		if c.User != "" {
			values = []string{c.User}
		}
	default:
		what = "the caller"
		if c.Caller != nil {
			values = []string{c.Caller.Name}
		}
	}
	const most = 8
	if len(values) == 0 {
		return "the call has no " + strings.TrimPrefix(what, "the ")
	}
	quoted := make([]string, 0, most)
	for _, v := range values[:min(len(values), most)] {
		quoted = append(quoted, strconv.Quote(clip(v)))
	}
	return what + " is " + strings.Join(quoted, ", ")
}

// why says in words how a rule came to its answer.
func why(c *inference.Call, r *inference.Rule, a answer) string {
	if r.Match != nil {
		has := subject(c, r.Match)
		if !r.Match.Meets(c) {
			return has + "; the rule is for calls where it " + r.Match.Says
		}
		if r.Script == "" && len(r.Weights) == 0 && a.target != nil {
			return has
		}
	}
	switch missing := a.choice.Reason; {
	case r.Script != "":
		return scriptWhy(a)
	case len(r.Weights) > 0:
		return weightsWhy(c, r, a)
	case missing != "":
		return missing
	}
	return "it has no condition"
}

func scriptWhy(a answer) string {
	switch {
	case a.target != nil && a.choice.Reason != "":
		return "the script says: " + a.choice.Reason
	case a.target != nil:
		return "the script answers it"
	case a.final:
		return "it ended with " + strings.TrimPrefix(a.choice.Reason, scriptSays(a.choice.Rule)) + ", so the stable target serves"
	case a.choice.Reason != "":
		return "no opinion: " + a.choice.Reason
	}
	return "the script has no opinion"
}

func weightsWhy(c *inference.Call, r *inference.Rule, a answer) string {
	if c.User == "" {
		return "the call names no user, so each request goes where its id falls"
	}
	at := strconv.FormatFloat(float64(inference.Bucket(c.User, r.Salt))/100, 'f', 2, 64)
	text := fmt.Sprintf("by salt %q the user is at %s of 100", r.Salt, at)
	for _, w := range r.Weights {
		if w.Holds(inference.Hash(c.User, r.Salt)) {
			text += fmt.Sprintf(", which belongs to %s (%s %%)", w.Target.Name, strconv.FormatFloat(w.Share, 'f', -1, 64))
		}
	}
	if a.choice.Reason != "" {
		text += "; " + a.choice.Reason
	}
	return text
}
