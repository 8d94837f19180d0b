package explain

import (
	"strconv"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Fallback says what answers such a call while its target cannot.
type Fallback struct {
	Chain     []string `json:"chain"`     // in the order in which they are asked, in words; those left out that are always passed over
	Protocols []string `json:"protocols"` // that get it: predict, v2
	On        []string `json:"on"`        // outage, overload
	// PassedOver are targets of the chain that cannot answer such a call, for their tensors are others.
	PassedOver []PassedOver `json:"passed_over,omitempty"`
}

// PassedOver is a target that cannot answer in the place of the call's own.
type PassedOver struct {
	Name string   `json:"name"` // as in the chain
	Over []string `json:"over"` // the protocols that this is so for
	Why  string   `json:"why"`
}

// fallbackOf describes the chain of c's model as it is for c: a call that names its version gets no other target.
func fallbackOf(c *inference.Call) *Fallback {
	f := c.Model.Fallback
	if f == nil {
		return nil
	}
	said := &Fallback{
		Protocols: those(map[string]bool{predict: f.Predict, "v2": f.V2}, predict, "v2"),
		On:        those(map[string]bool{"outage": f.Outage, "overload": f.Overload}, "outage", "overload"),
	}
	for ; f != nil; f = f.Else {
		switch {
		case f.Score != nil:
			said.Chain = append(said.Chain, "score "+strconv.FormatFloat(*f.Score, 'g', -1, 64))
		case c.Pinned:
		case f.To != nil && f.To != c.Target:
			said.add(c, f.To.Name, c.Model, f.To)
		case f.Model != nil:
			target := f.Model.Stable
			if target == nil && f.Model.Current != nil {
				target = f.Model.Current()
			}
			said.add(c, "model "+f.Model.Name, f.Model, target)
		}
	}
	if len(said.Chain)+len(said.PassedOver) == 0 {
		return nil
	}
	return said
}

// add puts a target into the chain, or, where its tensors are known to be others than those that c expects, among those
// that are passed over. A target that is nil is not known now.
func (f *Fallback) add(c *inference.Call, name string, m *inference.Model, t *inference.Target) {
	before := len(f.PassedOver)
	passed := 0
	if t != nil && c.Target != nil {
		own, theirs := inference.TensorsOf(c.Model, c.Target), inference.TensorsOf(m, t)
		for _, protocol := range f.Protocols {
			found := own.MismatchOf(&theirs, protocol == predict)
			if !found.Found() {
				continue
			}
			passed++
			if last := len(f.PassedOver) - 1; last >= before && f.PassedOver[last].Why == because(found) {
				f.PassedOver[last].Over = append(f.PassedOver[last].Over, protocol)
				continue
			}
			f.PassedOver = append(f.PassedOver, PassedOver{Name: name, Over: []string{protocol}, Why: because(found)})
		}
	}
	if passed == 0 || passed < len(f.Protocols) {
		f.Chain = append(f.Chain, name)
	}
}

// because is a mismatch as a sentence of its own.
func because(m inference.Mismatch) string {
	return strings.Replace(strings.Replace(m.String(), "whose ", "its ", 1), "which has ", "it has ", 1)
}

// words say which target is passed over, and why.
func (p PassedOver) words() string {
	return p.Name + " is passed over (" + strings.Join(p.Over, ", ") + "): " + p.Why
}

// predict is the protocol of that name in Protocols.
const predict = "predict"

func those(which map[string]bool, order ...string) []string {
	var all []string
	for _, name := range order {
		if which[name] {
			all = append(all, name)
		}
	}
	return all
}

// words is the fallback in a line.
func (f *Fallback) words() string {
	if len(f.Chain) == 0 {
		return "none that could answer: the error itself"
	}
	return strings.Join(f.Chain, ", else ") + ", over " + strings.Join(f.Protocols, " and ") + ", in place of an " + strings.Join(f.On, " or ")
}
