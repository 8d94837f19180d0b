package catalog

import (
	"regexp"
	"slices"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// maxSubject is how long a value may be for an expression to be tried on it; a message's metadata may be as large as the
// message.
const maxSubject = 4 << 10

// rules compiles the split of a model. target finds the model's targets by name.
func rules(declared *config.Model, target func(name string) *inference.Target) []inference.Rule {
	var all []inference.Rule
	for i := range declared.Split {
		r := &declared.Split[i]
		all = append(all, inference.Rule{
			Name: r.Name, Match: match(r.When), To: target(r.To), Script: r.Script, Salt: r.Salt,
			Weights: weights(r.Weights, declared.Stable, target), SetHeaders: r.SetHeaders,
		})
	}
	return all
}

// weights lays out the shares of a rule. The stable target gets what the others leave, so that a change of one other moves
// only users between these two; where it is not among them, the first does.
func weights(file []config.Weight, stable string, target func(name string) *inference.Target) []inference.Weight {
	if len(file) == 0 {
		return nil
	}
	shares := make([]float64, len(file))
	for i, w := range file {
		shares[i] = w.Share
	}
	rest := max(slices.IndexFunc(file, func(w config.Weight) bool { return w.Target == stable }), 0)
	all := make([]inference.Weight, len(file))
	for i, span := range inference.Spans(shares, rest) {
		all[i] = inference.Weight{Target: target(file[i].Target), Share: file[i].Share, Span: span}
	}
	return all
}

func match(w *config.When) *inference.Match {
	if w == nil {
		return nil
	}
	return &inference.Match{
		Header: w.Header, Field: w.Metadata, User: w.Who == config.WhoUser, Caller: w.Who == config.WhoCaller,
		Holds: holds(w), Says: w.String(),
	}
}

// holds gives the comparison of a condition. None of them allocates.
func holds(w *config.When) func(string) bool {
	first := w.Values[0]
	switch {
	case w.Op == config.WhenPrefix:
		return func(v string) bool { return strings.HasPrefix(v, first) }
	case w.Op == config.WhenRegex:
		expression := regexp.MustCompile(first) // the configuration has been checked
		return func(v string) bool { return len(v) <= maxSubject && expression.MatchString(v) }
	case len(w.Values) == 1:
		return func(v string) bool { return v == first }
	}
	in := make(map[string]struct{}, len(w.Values))
	for _, v := range w.Values {
		in[v] = struct{}{}
	}
	return func(v string) bool { _, ok := in[v]; return ok }
}

// mirror compiles where copies go.
func mirror(declared *config.Model, target func(name string) *inference.Target) *inference.Mirror {
	if declared.Mirror == nil {
		return nil
	}
	return &inference.Mirror{To: target(declared.Mirror.To), Percent: declared.Mirror.Percent}
}
