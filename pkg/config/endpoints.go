package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Keepalive says how connections to an upstream are found to be dead while calls are on them. Zero: as the upstream
// does by itself.
type Keepalive struct {
	Time    time.Duration // of silence, before a ping
	Timeout time.Duration // of a ping
}

// Eject says when an endpoint that keeps failing gets no calls for a while. Zero fields: as the upstream does by itself.
type Eject struct {
	Failures int           // in a row
	For      time.Duration // times how often it happened
	AtMost   float64       // share of the upstream's endpoints, above 0, 1 at most
}

// Bounds of keepalive and eject.
const (
	// Triton takes pings that come more often than that for an attack, unless its flags say otherwise.
	freeKeepalive       = 300 * time.Second
	minKeepalive        = 10 * time.Second
	maxKeepalive        = time.Hour
	minKeepaliveTimeout = time.Second
	maxKeepaliveTimeout = time.Minute

	maxEjectFailures = 1_000
	minEjectFor      = time.Second
	maxEjectFor      = 5 * time.Minute
)

// keepalive compiles the section `keepalive` of an upstream.
func (c *compiler) keepalive(path string, f *KeepaliveFile) Keepalive {
	if f == nil || c.mistaken(path) {
		return Keepalive{}
	}
	often := func(d Duration) (time.Duration, error) {
		v, err := between(minKeepalive, maxKeepalive)(d)
		if err == nil && v < freeKeepalive && !f.Permitted {
			err = fmt.Errorf("is under %s, and Triton by default closes connections that are pinged so often; start it with --grpc-http2-min-recv-ping-interval-without-data=%d --grpc-http2-max-ping-strikes=0 (in Triton --grpc-keepalive-time and --grpc-keepalive-permit-without-calls are about pings of its own), and say permitted: true here; or leave time out", shortly(freeKeepalive), (v / 2).Milliseconds())
		}
		return v, err
	}
	return Keepalive{
		Time:    setting(c, path+".time", f.Time, "", 0, often),
		Timeout: setting(c, path+".timeout", f.Timeout, "", 0, between(minKeepaliveTimeout, maxKeepaliveTimeout)),
	}
}

// eject compiles the section `eject` of an upstream.
func (c *compiler) eject(path string, f *EjectFile) Eject {
	if f == nil || c.mistaken(path) {
		return Eject{}
	}
	return Eject{
		Failures: c.count(path+".consecutive_failures", f.ConsecutiveFailures, 0, maxEjectFailures),
		For:      setting(c, path+".for", f.For, "", 0, between(minEjectFor, maxEjectFor)),
		AtMost:   setting(c, path+".at_most", f.AtMost, "", 0, Percent.parse),
	}
}

// pick compiles the field `pick`; absent, it is def.
func (c *compiler) pick(path, written string, def inference.Pick) inference.Pick {
	return setting(c, path, written, "", def, func(s string) (inference.Pick, error) {
		for _, p := range []inference.Pick{inference.LeastLoaded, inference.RoundRobin, inference.HashUser, inference.QueueDepth} {
			if s == p.String() {
				return p, nil
			}
		}
		return def, errors.New("must be least_loaded, queue_depth, round_robin or hash(user)")
	})
}

// probes is what a section `probe` says; absent, it is def.
func probes(f *ProbeFile, def bool) bool {
	if f == nil {
		return def
	}
	return f.Infer
}
