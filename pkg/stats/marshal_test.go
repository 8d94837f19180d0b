package stats

import (
	"testing"
	"time"
)

func sample() Snapshot {
	target := NewRegistry(newClock().now).Target(key)
	for i := range 100 {
		target.Record("a:1", Live, Outcome(i%int(outcomes)), time.Duration(i*i)*time.Millisecond)
	}
	return target.Window(W1m)
}

func TestSnapshotsThatAreDamagedAreRefusedAndChangeNothing(t *testing.T) {
	good, _ := sample().MarshalBinary()
	before := sample()
	for n := range good {
		s := before
		if err := s.UnmarshalBinary(good[:n]); err == nil {
			continue // a cut between two counts cannot be told from the end
		}
		wantSame(t, s, before)
	}
	for name, b := range map[string][]byte{
		"nothing":          {},
		"another format":   {2, 0, 0},
		"no distance":      {format, 0, 0, 0, 1},
		"no count":         {format, 0, 0, 1, 0},
		"beyond the last":  {format, 0, 0, 0xff, 0xff, 0xff, 0x7f, 1},
		"too many":         {format, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
		"half a number":    {format, 0, 0, 1, 0x80},
		"an endless one":   {format, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"instants missing": {format},
	} {
		s := before
		if err := s.UnmarshalBinary(b); err == nil {
			t.Errorf("%s was taken for a snapshot", name)
		}
		wantSame(t, s, before)
	}
}

func TestAnEmptySnapshotSurvivesTheTrip(t *testing.T) {
	b, _ := Snapshot{}.MarshalBinary()
	s := sample()
	if err := s.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	if s.Count(Any) != 0 || !s.From.IsZero() || !s.To.IsZero() {
		t.Fatalf("an empty snapshot came back as %+v", s)
	}
}

func FuzzUnmarshal(f *testing.F) {
	good, _ := sample().MarshalBinary()
	f.Add(good)
	f.Add([]byte{format, 0, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Snapshot
		if err := s.UnmarshalBinary(b); err != nil {
			return
		}
		again, err := s.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var back Snapshot
		if err := back.UnmarshalBinary(again); err != nil {
			t.Fatalf("what was read cannot be written and read again: %v", err)
		}
		wantSame(t, s, back)
		for _, q := range quantiles {
			s.Quantile(q, Any)
		}
		s.Mean(Any)
	})
}
