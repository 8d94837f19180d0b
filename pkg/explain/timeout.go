package explain

import (
	"fmt"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// timeout says how long the call may take, and why.
func (e *Explainer) timeout(c *inference.Call) *Timeout {
	limits := c.Model.Timeouts
	t := &Timeout{Max: Duration(limits.Max), FirstAnswer: Duration(limits.FirstAnswer), Idle: Duration(limits.Idle)}
	from := "timeout of the model"
	if limits == e.Defaults() {
		from = "defaults.timeout"
	}
	t.Why = from + "; the caller's own deadline counts where it is sooner"
	if e.Dynamic == nil || c.Target == nil || limits.Dynamic.Factor == 0 || limits.Max <= 0 {
		return t
	}
	if t.Dynamic = e.Dynamic(c.Model, c.Target); t.Dynamic != nil {
		t.Dynamic.Mode = inference.Enforce.String()
		if limits.Dynamic.Shadow {
			t.Dynamic.Mode = inference.Shadow.String()
		}
		t.Dynamic.Floor, t.Dynamic.Factor = Duration(limits.Dynamic.Floor), limits.Dynamic.Factor
		t.Dynamic.Why = t.Dynamic.why(limits.Max)
	}
	return t
}

// Sources of a dynamic timeout, as metrics call them.
const (
	byPrometheus = "prometheus"
	byStale      = "stale"
	byStats      = "stats"
)

// why says in words what the timeout of a target follows from.
func (d *Dynamic) why(most time.Duration) string {
	var by string
	age := d.Age.String() + " ago"
	switch d.Source {
	case byPrometheus:
		by = "Prometheus, " + age
	case byStale:
		by = "Prometheus, " + age + ", and it has said nothing good since"
	case byStats:
		by = "this gateway's own attempts, " + age
		if d.Asks {
			by += "; Prometheus does not tell"
		}
	default:
		who := "this gateway"
		if d.Asks {
			who = "Prometheus or this gateway"
		}
		if d.Samples >= d.Needs {
			return "no dynamic timeout: there are calls enough, but nobody can tell how long they took"
		}
		return fmt.Sprintf("no dynamic timeout yet: %s has seen %d of the %d attempts within an hour that it takes", who, d.Samples, d.Needs)
	}
	took := "999 in 1000 took at most " + time.Duration(d.P999).Round(10*time.Microsecond).String()
	if d.Beyond {
		took = "1 in 1000 took longer than " + d.P999.String()
	}
	verb, is := "dynamic, ", ""
	if d.Mode == inference.Shadow.String() {
		verb, is = "shadow: no call ends by it, but it would be ", ""
	}
	text := fmt.Sprintf("%s%s%s for this target: of %d attempts within an hour %s (%s)", verb, is, time.Duration(d.Timeout).Round(time.Millisecond), d.Samples, took, by)
	if time.Duration(d.Floor) >= most {
		return text + "; timeout.max is not above its floor, and holds"
	}
	return fmt.Sprintf("%s; it moves toward %v times that, at least %s, a step every 15s", text, d.Factor, d.Floor)
}
