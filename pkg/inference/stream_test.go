package inference

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

type thing struct {
	name   string
	closed atomic.Int64
}

func (t *thing) Close() error {
	t.closed.Add(1)
	return nil
}

func fresh(io.Closer) bool { return false }
func stale(io.Closer) bool { return true }

func TestWhatIsBeingOpenedHoldsUpNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Stream{Context: t.Context()}
		answer := make(chan struct{})
		slow, opens := &thing{}, atomic.Int64{}
		got := make(chan io.Closer, 3)
		for range 3 {
			go func() {
				k, err := s.Keep("slow", fresh, func() (io.Closer, error) {
					opens.Add(1)
					<-answer
					return slow, nil
				})
				if err != nil {
					t.Error(err)
				}
				got <- k
			}()
		}
		synctest.Wait()
		quick := &thing{}
		if k, err := s.Keep("quick", fresh, func() (io.Closer, error) { return quick, nil }); err != nil || k != quick {
			t.Errorf("got %v, %v", k, err)
		}
		if len(got) != 0 {
			t.Error("it came before it had been opened")
		}
		close(answer)
		for range 3 {
			if k := <-got; k != slow {
				t.Errorf("got %v", k)
			}
		}
		if opens.Load() != 1 {
			t.Errorf("opened %d times", opens.Load())
		}
		s.Close()
		if slow.closed.Load() != 1 || quick.closed.Load() != 1 {
			t.Error("not all has been closed once")
		}
	})
}

func TestWhatIsStaleOrCouldNotBeOpenedIsOpenedAnew(t *testing.T) {
	s := &Stream{Context: t.Context()}
	broken := errors.New("no")
	if _, err := s.Keep(1, fresh, func() (io.Closer, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	first, second := &thing{name: "first"}, &thing{name: "second"}
	for _, want := range []*thing{first, second} {
		if k, err := s.Keep(1, stale, func() (io.Closer, error) { return want, nil }); err != nil || k != want {
			t.Errorf("got %v, %v", k, err)
		}
	}
	if k, _ := s.Keep(1, fresh, nil); k != second {
		t.Errorf("got %v", k)
	}
	s.Close()
	if _, err := s.Keep(1, fresh, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestWhoWaitsForWhatCannotBeOpenedOpensItItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Stream{Context: t.Context()}
		answer, good, got := make(chan struct{}), &thing{}, make(chan error, 1)
		go func() {
			_, err := s.Keep(1, fresh, func() (io.Closer, error) {
				<-answer
				return nil, context.DeadlineExceeded
			})
			got <- err
		}()
		synctest.Wait()
		go func() {
			k, err := s.Keep(1, fresh, func() (io.Closer, error) { return good, nil })
			if k != good {
				t.Errorf("got %v", k)
			}
			got <- err
		}()
		synctest.Wait()
		close(answer)
		if first, second := <-got, <-got; errors.Join(first, second) == nil || first != nil && second != nil {
			t.Errorf("got %v and %v", first, second)
		}
		s.Close()
	})
}

func TestWhatIsOpenedWhileTheStreamClosesIsClosedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Stream{Context: t.Context()}
		answer, late := make(chan struct{}), &thing{}
		got := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := s.Keep(1, fresh, func() (io.Closer, error) {
					<-answer
					return late, nil
				})
				got <- err
			}()
		}
		synctest.Wait()
		go s.Close()
		synctest.Wait()
		close(answer)
		for range 2 {
			if err := <-got; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}
		synctest.Wait()
		if late.closed.Load() != 1 {
			t.Errorf("closed %d times", late.closed.Load())
		}
	})
}

func TestALineIsInOrderAndOthersAreNotHeldUp(t *testing.T) {
	s := &Stream{Context: t.Context()}
	first, second, other := s.Line("a"), s.Line("a"), s.Line("b")
	for _, at := range []Turn{first, other} {
		if err := at.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := second.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("the second place is up before the first is done: %v", err)
	}
	first.Done()
	if err := second.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}
