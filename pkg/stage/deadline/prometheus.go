package deadline

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/stats"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// Prometheus answers questions about all replicas; promquery.Client is one.
type Prometheus interface {
	// Vector evaluates expr and calls each for every series of the result, or gives an error and calls nobody.
	Vector(ctx context.Context, expr string, each func(labels map[string]string, value float64)) error
}

// Parts of the answer, by the label of that name.
const (
	partLabel = "part"
	partP999  = "p999"
	partCount = "count"
	partAge   = "age"
)

// frozen is how old the newest value that Prometheus has of a target may be, by its own clock: two scrapes and more of the
// usual interval. What is older is of a target that it does not reach any more.
const frozen = 150 * time.Second

// Expression is what Prometheus is asked: for every target the latency of 999 in 1000 attempts within the last hour, how
// many there were, and how old the newest value is. The outcomes are those of stats.Timed: answers, and attempts that were
// given up for taking too long, at the time that they had. Errors say nothing on latency.
var Expression = expression()

func expression() string {
	var outcomes []string
	for _, o := range stats.Outcomes() {
		if stats.Timed.Has(o) {
			outcomes = append(outcomes, o.String())
		}
	}
	key := telemetry.LabelModel + "," + telemetry.LabelTarget
	of := func(suffix string) string {
		return fmt.Sprintf("%s_%s{%s=~%q}", telemetry.UpstreamDuration, suffix, telemetry.LabelOutcome, strings.Join(outcomes, "|"))
	}
	part := func(name, expr string) string {
		return fmt.Sprintf("label_replace(%s,%q,%q,\"\",\"\")", expr, partLabel, name)
	}
	return part(partP999, fmt.Sprintf("histogram_quantile(0.999,sum by(%s,le)(rate(%s[1h])))", key, of("bucket"))) +
		" or " + part(partCount, fmt.Sprintf("sum by(%s)(increase(%s[1h]))", key, of("count"))) +
		" or " + part(partAge, fmt.Sprintf("time()-max by(%s)(timestamp(%s))", key, of("count")))
}

// name is what Prometheus knows a target by.
type name struct{ model, target string }

// ask gives what Prometheus says of each target. A target that it knows too little of, or nothing new, has no samples.
func ask(ctx context.Context, p Prometheus) (map[name]latency, error) {
	all := make(map[name]latency)
	old := make(map[name]bool)
	err := p.Vector(ctx, Expression, func(labels map[string]string, v float64) {
		n := name{labels[telemetry.LabelModel], labels[telemetry.LabelTarget]}
		if n.model == "" || n.target == "" || n.model == telemetry.LabelOther || n.target == telemetry.LabelOther {
			return // of many together, beyond the bound on labels
		}
		l := all[n]
		switch labels[partLabel] {
		case partP999:
			l.p999, l.beyond = seconds(v)
		case partCount:
			if v >= 0 && v < math.MaxInt64 { // neither NaN nor infinite
				l.samples = uint64(v)
			}
		case partAge:
			old[n] = !(v <= frozen.Seconds())
			return
		default:
			return
		}
		all[n] = l
	})
	for n, l := range all {
		if was, known := old[n]; was || !known {
			l.samples = 0
			all[n] = l
		}
	}
	return all, err
}

// seconds reads a quantile. From the last bucket's edge on it is not known exactly: Prometheus gives that edge for all that
// is longer. NaN, infinite and negative ones are none.
func seconds(v float64) (d time.Duration, beyond bool) {
	if !(v > 0) || math.IsInf(v, 0) {
		return 0, false
	}
	if v >= telemetry.LongestBucket.Seconds() {
		return telemetry.LongestBucket, true
	}
	return time.Duration(v * float64(time.Second)), false
}
