package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// What a breaker is without a word in the file.
var defaultBreaker = inference.Breaker{
	Window: 10 * time.Second, MinCalls: 20, Failures: .5, Slow: .6,
	Open: 5 * time.Second, OpenMax: 300 * time.Second, Probes: 5,
}

// Bounds of a breaker.
const (
	minBreakerWindow = time.Second
	maxBreakerWindow = 10 * time.Minute
	minBreakerOpen   = 100 * time.Millisecond
	maxBreakerOpen   = time.Hour
	maxBreakerCalls  = 100_000
	maxBreakerProbes = 1_000
)

// SLO is what a model promises: how long 99 in 100 calls, and 999 in 1000, take at most. Zero: nothing is said.
type SLO struct{ P99, P999 time.Duration }

// breaker compiles a section `breaker`; what it leaves out is as in def.
func (c *compiler) breaker(path string, f *BreakerFile, def inference.Breaker) inference.Breaker {
	if f == nil || c.mistaken(path) {
		return def
	}
	b := inference.Breaker{
		Window:    setting(c, path+".window", f.Window, "", def.Window, between(minBreakerWindow, maxBreakerWindow)),
		MinCalls:  c.count(path+".min_calls", f.MinCalls, def.MinCalls, maxBreakerCalls),
		Failures:  setting(c, path+".failures", f.Failures, "", def.Failures, Percent.parse),
		Slow:      setting(c, path+".slow", f.Slow, "", def.Slow, Percent.parse),
		SlowAfter: setting(c, path+".slow_after", f.SlowAfter, "", def.SlowAfter, Duration.parse),
		Open:      setting(c, path+".open", f.Open, "", def.Open, between(minBreakerOpen, maxBreakerOpen)),
		OpenMax:   setting(c, path+".open_max", f.OpenMax, "", def.OpenMax, between(minBreakerOpen, maxBreakerOpen)),
		Probes:    c.count(path+".probes", f.Probes, def.Probes, maxBreakerProbes),
	}
	if b.OpenMax < b.Open && !c.mistaken(path+".open") && !c.mistaken(path+".open_max") {
		at := ".open_max"
		if !c.has(path + at) {
			at = ".open"
		}
		c.check(path+at, fmt.Errorf("open is %s and open_max %s, but a breaker stays open for open at first and for open_max at most; change one of them", shortly(b.Open), shortly(b.OpenMax)))
	}
	return b
}

// modelBreaker is breaker for a model, whose own promise says what is slow where the section does not.
func (c *compiler) modelBreaker(path string, f *BreakerFile, slo SLO) inference.Breaker {
	def := c.cfg.Breaker
	if slo.P999 > 0 {
		def.SlowAfter = slo.P999
	}
	b := c.breaker(path, f, def)
	if c.has(path+".slow") && b.SlowAfter == 0 && !c.mistaken(path+".slow_after") {
		c.check(path+".slow", errors.New("is the share of slow calls, and nothing says when a call is slow: add slow_after, or slo: {p999: …}"))
	}
	return b
}

// slo compiles the section `slo` of a model, whose calls may take most.
func (c *compiler) slo(path string, f *SLOFile, most time.Duration) SLO {
	if f == nil || c.mistaken(path) {
		return SLO{}
	}
	promised := func(d Duration) (time.Duration, error) {
		v, err := d.parse()
		if err == nil && v > most {
			err = fmt.Errorf("is longer than a call may take (timeout.max, %s): such a promise is never broken; lower it", shortly(most))
		}
		return v, err
	}
	s := SLO{
		P99:  setting(c, path+".p99", f.P99, "", 0, promised),
		P999: setting(c, path+".p999", f.P999, "", 0, promised),
	}
	if s.P99 > s.P999 && s.P999 > 0 {
		c.check(path+".p99", fmt.Errorf("is longer than p999, %s, and yet holds for fewer calls; swap them", s.P999))
	}
	return s
}

// count is the value of a field that is a number from 1 to most.
func (c *compiler) count(path string, n, def, most int) int {
	if !c.has(path) || c.mistaken(path) {
		return def
	}
	if n < 1 || n > most {
		c.wrong(path, "must be 1 to %d", most)
		return def
	}
	return n
}

// between parses a length of time within bounds.
func between(least, most time.Duration) func(Duration) (time.Duration, error) {
	return func(d Duration) (time.Duration, error) {
		v, err := d.parse()
		if err == nil && (v < least || v > most) {
			err = fmt.Errorf("must be %s to %s", shortly(least), shortly(most))
		}
		return v, err
	}
}

// shortly writes a length of time as people do: 10m, not 10m0s.
func shortly(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = text[:len(text)-2]
	}
	if strings.HasSuffix(text, "h0m") {
		text = text[:len(text)-2]
	}
	return text
}
