package triton

import (
	"strings"

	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// What an attempt shows beyond the call itself goes to Health at once, and, where it is the endpoint's or model's
// own failure, to those who eject.

// learn acts on how an attempt ended; failed is nil for one that was answered.
func (s *seat) learn(failed error) {
	if failed == nil {
		s.ep.answers()
		s.succeeded()
		return
	}
	up, f := s.pool.up, fault.Of(failed)
	switch f.Kind {
	case fault.UpstreamUnavailable:
		up.lookAgain() // the address may have moved
		switch dialed(f) {
		case dialRefused:
			up.health.Refused(s.ep.name, f.Cause)
			s.pool.changed() // others hear of it in a moment
		case dialLate:
			up.health.Doubt(s.ep.name)
		case dialNever:
			return // nobody's failure but ours
		case dialFine:
			s.ep.answers() // it says so itself
			up.health.Kick(s.pool.model, s.pool.version)
		}
	case fault.EndpointLost:
		up.lookAgain()
		up.health.Doubt(s.ep.name)
		s.ep.pinged(f)
	case fault.ModelNotReady:
		up.health.NotReady(s.ep.name, s.pool.model, s.pool.version)
		s.pool.changed()
	case fault.ModelNotFound:
		up.health.Kick(s.pool.model, s.pool.version)
	case fault.Draining:
		up.health.Leaving(s.ep.name, f)
		s.pool.changed()
	default:
		if f.Upstream {
			s.ep.answers()
		}
	}
	s.judge(f)
}

// reach is how the attempt to connect went that an UpstreamUnavailable tells of.
type reach uint8

const (
	dialFine    reach = iota // there was none: a server answered that it is unavailable
	dialRefused              // nobody is there, or does not want us
	dialLate                 // nobody answered
	dialNever                // this host could not even try
)

// ours are texts on a connection that could not be tried: they say nothing of the other side.
var ours = []string{
	"too many open files", "cannot assign requested address", "no buffer space available", "cannot allocate memory",
	"operation was canceled", "socket: ",
}

// late are texts on a connection that was tried, and nothing came back.
var late = []string{"i/o timeout", "context deadline exceeded", "connection timed out", "operation timed out", "use of closed network connection"}

func dialed(f *fault.Fault) reach {
	if f.Cause == nil {
		return dialFine
	}
	text := status.Convert(f.Cause).Message()
	switch {
	case !isUnreached(text):
		return dialFine
	case hasAny(text, ours):
		return dialNever
	case hasAny(text, late):
		return dialLate
	}
	return dialRefused
}

// answers notes that the endpoint lives. Most calls find it noted already, and then it costs a look.
func (e *endpoint) answers() {
	if !e.answered.Load() {
		e.answered.Store(true)
	}
}

// reread knows better than the upstream whether a model that is not found exists: one that was ready a moment ago
// does, and is being unloaded.
func (s *seat) reread(f *fault.Fault) *fault.Fault {
	if f.Kind != fault.ModelNotFound || !s.pool.up.watched || s.pool.up.health.State(s.ep.name, s.pool.model, s.pool.version) != inference.Ready {
		return f
	}
	again := *f
	again.Kind = fault.ModelNotReady
	return &again
}

// readProbe gives a probe's failure to connect the kind that tells Health what it is evidence of.
func readProbe(err error) error {
	if err == nil {
		return nil
	}
	f := fault.Of(err)
	if f.Kind != fault.UpstreamUnavailable {
		return err
	}
	switch dialed(f) {
	case dialLate:
		return fault.Wrap(fault.UpstreamTimeout, f.Cause, "%s", f.Msg)
	case dialNever:
		return fault.Wrap(fault.Internal, f.Cause, "this host cannot connect at present")
	default:
		return err
	}
}

// pinged makes further connections to the endpoint ask less often whether it is there, once it has complained.
func (e *endpoint) pinged(f *fault.Fault) {
	text := ""
	if f.Cause != nil {
		text = f.Cause.Error()
	}
	if strings.Contains(text, "too_many_pings") || strings.Contains(text, "oo many pings") {
		e.pingLess()
	}
}
