package calm_test

import (
	"errors"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/internal/calm"
)

// quiet is a test of a test, whose failure is looked at.
type quiet struct {
	testing.TB
	failed bool
}

func (q *quiet) Helper()               {}
func (q *quiet) Logf(string, ...any)   {}
func (q *quiet) Errorf(string, ...any) { q.failed = true }
func (q *quiet) Failed() bool          { return q.failed }

func TestOneGoodMomentIsEnoughAndNoneIsAFailure(t *testing.T) {
	for _, c := range []struct {
		good   int // the attempt that holds; 0 for none
		runs   int
		failed bool
	}{{1, 1, false}, {5, 5, false}, {0, 12, true}} {
		q, runs := &quiet{}, 0
		calm.Moment(q, func() error {
			if runs++; runs == c.good {
				return nil
			}
			return errors.New("late")
		})
		if runs != c.runs || q.failed != c.failed {
			t.Errorf("%+v: %d runs, failed: %v", c, runs, q.failed)
		}
	}
}
