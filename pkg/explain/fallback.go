package explain

import (
	"strconv"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Fallback says what answers such a call while its target cannot.
type Fallback struct {
	Chain     []string `json:"chain"`     // in the order in which they are asked, in words
	Protocols []string `json:"protocols"` // that get it: predict, v2
	On        []string `json:"on"`        // outage, overload
}

// fallbackOf describes the chain of c's model as it is for c: a call that names its version gets no other target.
func fallbackOf(c *inference.Call) *Fallback {
	f := c.Model.Fallback
	if f == nil {
		return nil
	}
	said := &Fallback{
		Protocols: those(map[string]bool{"predict": f.Predict, "v2": f.V2}, "predict", "v2"),
		On:        those(map[string]bool{"outage": f.Outage, "overload": f.Overload}, "outage", "overload"),
	}
	for ; f != nil; f = f.Else {
		switch {
		case f.Score != nil:
			said.Chain = append(said.Chain, "score "+strconv.FormatFloat(*f.Score, 'g', -1, 64))
		case c.Pinned:
		case f.To != nil && f.To != c.Target:
			said.Chain = append(said.Chain, f.To.Name)
		case f.Model != nil:
			said.Chain = append(said.Chain, "model "+f.Model.Name)
		}
	}
	if len(said.Chain) == 0 {
		return nil
	}
	return said
}

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
	return strings.Join(f.Chain, ", else ") + ", over " + strings.Join(f.Protocols, " and ") + ", in place of an " + strings.Join(f.On, " or ")
}
