package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Names of metrics of scripts.
const (
	ScriptRuns     = "gateway_script_runs_total"
	ScriptDuration = "gateway_script_duration_seconds"
	ScriptInfo     = "gateway_script_info"
	ScriptOff      = "gateway_script_off"
	ScriptRefused  = "gateway_script_refused_total"
	ScriptMemory   = "gateway_script_memory_bytes"
	ScriptCalls    = "gateway_script_recorded_calls"
)

// Names of labels of scripts.
const (
	LabelScript = "script" // its name
	LabelState  = "state"  // of a script: ok | refused | off
)

// MaxScripts bounds how many scripts have counts of their own; those of more go under LabelOther.
const MaxScripts = 2_000

// scriptBuckets, in seconds: a run takes a microsecond or two, and 5 ms at most.
var scriptBuckets = []float64{1e-6, 2e-6, 5e-6, 1e-5, 1e-4, 1e-3, 2e-3, 5e-3, .01}

// ScriptState is what a script is now.
type ScriptState struct {
	Script string
	Hash   string // of the version that runs; "" while none does
	Source string // where that is from: file | override | last_good
	State  string // ok; refused: the newest version does not serve; off: it fails too often
	Off    bool
	Memory int64 // bytes that its compiled code holds
}

// Scripts are the metrics of scripts. No user, caller or model is ever a label.
type Scripts struct {
	runs     *prometheus.CounterVec
	duration *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	states   func() []ScriptState
	recorded func() int

	mu    sync.Mutex
	named map[string]struct{}
}

var (
	scriptInfo = prometheus.NewDesc(ScriptInfo, "1 for each script, with the version that runs. The state is refused while a newer one is not taken, off while it fails too often.", []string{LabelScript, LabelHash, LabelSource, LabelState}, nil)
	scriptOff  = prometheus.NewDesc(ScriptOff, "1 while a script is off because it failed too often, and its models go to their stable targets; to be alerted on.", []string{LabelScript}, nil)
	scriptSize = prometheus.NewDesc(ScriptMemory, "Bytes that the compiled code of a script holds, an estimate.", []string{LabelScript}, nil)
	scriptRing = prometheus.NewDesc(ScriptCalls, "Calls that are recorded for trying new versions of scripts on.", nil, nil)
)

// NewScripts makes the metrics of scripts part of what m shows; once for each m. Every scrape asks states, and recorded
// for how many calls are recorded.
func NewScripts(m *Metrics, states func() []ScriptState, recorded func() int) *Scripts {
	s := &Scripts{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: ScriptRuns, Help: "Runs of scripts by how they ended; off counts calls that were not asked because the script is off.",
		}, []string{LabelScript, LabelOutcome}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: ScriptDuration, Buckets: scriptBuckets, Help: "Duration of runs of scripts, of one run in 64.",
		}, []string{LabelScript}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: ScriptRefused, Help: "Versions of scripts that were not taken: mistakes, failing cases, unknown targets.",
		}, []string{LabelScript}),
		states: states, recorded: recorded, named: make(map[string]struct{}),
	}
	m.registry.MustRegister(s.runs, s.duration, s.refused, s)
	return s
}

// Describe implements prometheus.Collector.
func (s *Scripts) Describe(out chan<- *prometheus.Desc) {
	out <- scriptInfo
	out <- scriptOff
	out <- scriptSize
	out <- scriptRing
}

// Collect implements prometheus.Collector. A script that is given twice is shown once.
func (s *Scripts) Collect(out chan<- prometheus.Metric) {
	seen := make(map[string]struct{})
	for _, one := range s.states() {
		if _, ok := seen[one.Script]; ok || len(seen) == MaxScripts {
			continue
		}
		seen[one.Script] = struct{}{}
		out <- prometheus.MustNewConstMetric(scriptInfo, prometheus.GaugeValue, 1, one.Script, one.Hash, one.Source, one.State)
		out <- prometheus.MustNewConstMetric(scriptOff, prometheus.GaugeValue, number(one.Off), one.Script)
		out <- prometheus.MustNewConstMetric(scriptSize, prometheus.GaugeValue, float64(one.Memory), one.Script)
	}
	out <- prometheus.MustNewConstMetric(scriptRing, prometheus.GaugeValue, float64(s.recorded()))
}

// Refused counts a version of a script that was not taken.
func (s *Scripts) Refused(script string) { s.refused.WithLabelValues(s.label(script)).Inc() }

// label bounds the names over the life of the process.
func (s *Scripts) label(script string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.named[script]; !ok {
		if len(s.named) >= MaxScripts {
			return LabelOther
		}
		s.named[script] = struct{}{}
	}
	return script
}

// Script gives the counts of one script, whose runs may end in so many ways. Keep it: making it costs more than counting.
func (s *Scripts) Script(name string, outcomes []string) *ScriptCounts {
	return &ScriptCounts{of: s, script: s.label(name), outcomes: outcomes, runs: make([]atomic.Pointer[prometheus.Counter], len(outcomes))}
}

// ScriptCounts counts the runs of one script. It is safe for concurrent use.
type ScriptCounts struct {
	of       *Scripts
	script   string
	outcomes []string
	runs     []atomic.Pointer[prometheus.Counter]
	took     atomic.Pointer[prometheus.Observer]
}

// Ran counts a run that ended with the outcome of that index.
func (c *ScriptCounts) Ran(outcome int) {
	counter := c.runs[outcome].Load()
	if counter == nil {
		made := c.of.runs.WithLabelValues(c.script, c.outcomes[outcome])
		c.runs[outcome].Store(&made)
		counter = &made
	}
	(*counter).Inc()
}

// Took records how long a run took.
func (c *ScriptCounts) Took(d time.Duration) {
	observer := c.took.Load()
	if observer == nil {
		made := c.of.duration.WithLabelValues(c.script)
		c.took.Store(&made)
		observer = &made
	}
	(*observer).Observe(d.Seconds())
}
