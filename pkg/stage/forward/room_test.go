package forward

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// rooms is a pool whose endpoints take so many calls, and that knows of an endpoint that is full once it has refused.
type rooms struct {
	endpoints []*room
	picks     int
	gone      bool // those that are full are not there any more
}

type room struct {
	endpoint
	full, known bool
}

func (r *room) Infer(ctx context.Context, c *inference.Call) error {
	if r.full {
		r.asked++
		r.known = true
		return fault.New(fault.Overloaded, "full")
	}
	return r.endpoint.Infer(ctx, c)
}

func (p *rooms) Ready() bool { return true }

func (p *rooms) Pick(_ *inference.Call, not []inference.Endpoint) (inference.Endpoint, error) {
	p.picks++
	left := false
	for _, e := range p.endpoints {
		if slices.Contains(not, inference.Endpoint(e)) {
			continue
		}
		if !e.known {
			return e, nil
		}
		left = !p.gone
	}
	if left {
		return nil, fault.New(fault.Overloaded, "all are full")
	}
	return nil, fault.New(fault.NoEndpoint, "no other endpoint")
}

// crowded is a stage, what it records, and a call to endpoints a, b and so on, of which these are full.
func crowded(full ...bool) (s *Stage, r *records, told *int, p *rooms, c *inference.Call) {
	r, told, p = &records{}, new(int), &rooms{}
	for i, f := range full {
		p.endpoints = append(p.endpoints, &room{endpoint: endpoint{name: string(rune('a' + i))}, full: f})
	}
	s = &Stage{Attempts: r, Retries: r, Full: func(*inference.Target) { *told++ }}
	c = callTo(&pool{})
	c.Target.Pool = p
	return s, r, told, p, c
}

func TestACallThatCameTooLateForTheLastPlaceGoesWhereThereIsOne(t *testing.T) {
	s, r, told, _, c := crowded(true, true, false)
	if err := s.Handle(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if c.Endpoint != "c" || c.Attempts != 1 || len(r.outcomes) != 1 || r.retried+r.refused+*told != 0 {
		t.Errorf("answered by %q after %d attempts; recorded %+v, told %d times", c.Endpoint, c.Attempts, r, *told)
	}
}

func TestACallThatNobodyHasRoomForIsRefusedAndTouchesNoRecordOfItsTarget(t *testing.T) {
	for _, known := range []bool{false, true} { // by the pool, before anybody is asked
		s, r, told, p, c := crowded(true, true)
		p.endpoints[0].known, p.endpoints[1].known = known, known
		err := s.Handle(t.Context(), c)
		if fault.Of(err).Kind != fault.Overloaded || c.Endpoint != "" || c.Attempts != 0 || len(r.outcomes)+r.retried+r.refused != 0 || *told != 1 {
			t.Errorf("%v; at %q after %d attempts; recorded %+v, told %d times", err, c.Endpoint, c.Attempts, r, *told)
		}
	}
}

func TestAStepOfASequenceGoesNowhereElseForWantOfRoom(t *testing.T) {
	s, r, told, p, c := crowded(true, false)
	c.Head.Sequence.ID = "7"
	err := s.Handle(t.Context(), c)
	if fault.Of(err).Kind != fault.Overloaded || p.endpoints[1].asked != 0 || p.picks != 1 || len(r.outcomes) != 0 || *told != 1 {
		t.Errorf("%v; the other endpoint was asked %d times; recorded %+v, told %d times", err, p.endpoints[1].asked, r, *told)
	}
}

func TestWhereThereIsNoRoomForAFurtherAttemptTheFirstOnesFailureIsTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []fault.Kind{fault.EndpointLost, fault.UpstreamQueue} {
			for _, gone := range []bool{false, true} {
				s, r, told, p, c := crowded(false, true)
				p.gone = gone
				p.endpoints[0].errs = []error{fault.New(kind, "not here")}
				err := s.Handle(t.Context(), c)
				if fault.Of(err).Kind != kind || c.Attempts != 1 || len(r.outcomes) != 1 || *told != 0 {
					t.Errorf("%v after %d attempts; recorded %+v, told %d times", err, c.Attempts, r, *told)
				}
			}
		}
	})
}

func TestEndpointsThatAreAlwaysFullWhenACallComesEndIt(t *testing.T) {
	s, _, told, _, c := crowded(make([]bool, 2*places)...)
	for _, e := range c.Target.Pool.(*rooms).endpoints {
		e.full = true
	}
	err := s.Handle(t.Context(), c)
	if asked := c.Target.Pool.(*rooms).picks; fault.Of(err).Kind != fault.Overloaded || asked != places || *told != 1 {
		t.Errorf("%v after %d tries, told %d times", err, asked, *told)
	}
}

// TestAMessageWaitsForTheOneBeforeItRatherThanBeRefused: that may be what fills the last place.
func TestAMessageWaitsForTheOneBeforeItRatherThanBeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, told, p, c := crowded(false)
		p.endpoints[0].known = true
		var first inference.Turn
		first = first.Next()
		c.Stream, c.Turn = &inference.Stream{}, first.Next()
		done := make(chan error, 1)
		go func() { done <- s.Handle(t.Context(), c) }()
		synctest.Wait()
		p.endpoints[0].known = false // the message before has been answered
		first.Pass()
		if err := <-done; err != nil || *told != 0 {
			t.Errorf("%v, told %d times", err, *told)
		}
	})
}
