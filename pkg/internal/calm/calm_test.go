package calm

import (
	"errors"
	"runtime"
	"testing"
	"time"
)

// tested is a test of a test, whose failure is looked at.
type tested struct {
	testing.TB
	failed bool
}

func (q *tested) Helper()               {}
func (q *tested) Logf(string, ...any)   {}
func (q *tested) Errorf(string, ...any) { q.failed = true }
func (q *tested) Failed() bool          { return q.failed }

func TestOneGoodMomentIsEnoughAndNoneIsAFailure(t *testing.T) {
	for _, c := range []struct {
		good   int           // the attempt that holds; 0 for none
		stalls time.Duration // of the machine, during each attempt
		runs   int
		failed bool
	}{
		{1, time.Second, 1, false},
		{5, time.Second, 5, false},
		{0, time.Second, 12, true},
		{1, 0, 1, false},
		{3, 0, 3, false},
		{4, 0, 3, true},
		{0, stalled - 1, 3, true},
		{5, stalled, 5, false},
	} {
		q, runs := &tested{}, 0
		moment(q, func() error {
			if runs++; runs == c.good {
				return nil
			}
			return errors.New("late")
		}, func() func() time.Duration { return func() time.Duration { return c.stalls } })
		if runs != c.runs || q.failed != c.failed {
			t.Errorf("%+v: %d runs, failed: %v", c, runs, q.failed)
		}
	}
}

func TestLuckIsTriedWhateverTheMachineDoes(t *testing.T) {
	q, runs := &tested{}, 0
	Luck(q, func() error {
		if runs++; runs == attempts {
			return nil
		}
		return errors.New("lost")
	})
	if runs != attempts || q.failed {
		t.Errorf("%d runs, failed: %v", runs, q.failed)
	}
}

func TestNoStallIsLongerThanWhatItWasSeenIn(t *testing.T) {
	begun := time.Now()
	seen := watch()
	for time.Since(begun) < 4*tick { //nolint:revive // a measurement
	}
	longest := seen()
	if whole := time.Since(begun); longest < -tick || longest > whole {
		t.Errorf("%v of %v", longest, whole)
	}
}

func TestAMeasurementThatEndsTheTestEndsTheWatch(t *testing.T) {
	ended := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		moment(&tested{}, func() error { runtime.Goexit(); return nil }, func() func() time.Duration {
			return func() time.Duration { ended = true; return 0 }
		})
	}()
	<-done
	if !ended {
		t.Error("the watch goes on")
	}
}
