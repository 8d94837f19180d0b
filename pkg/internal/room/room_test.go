package room

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func begin(t *testing.T, r *Room, size int) *Hold {
	t.Helper()
	h := &Hold{}
	if err := h.Begin(t.Context(), r, size); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestAMessageIsReadWhileLessThanTheBoundIsHeldAndElseWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Bytes: 100})
		first := begin(t, r, 60)
		second := begin(t, r, 60) // less than 100 are held
		got := make(chan error, 1)
		var third Hold
		go func() { got <- third.Begin(t.Context(), r, 10) }()
		synctest.Wait()
		if s := r.State(); len(got) != 0 || s.Bytes != 120 || s.Waiting != 1 {
			t.Fatalf("%+v", s)
		}
		first.Read(60)
		second.Read(60)
		synctest.Wait()
		if len(got) != 0 {
			t.Fatal("a message that has been read makes no room until it is answered")
		}
		first.Free()
		first.Free()
		if err := <-got; err != nil {
			t.Error(err)
		}
		second.Free()
		third.Free()
		if s := r.State(); s != (State{}) {
			t.Errorf("left: %+v", s)
		}
	})
}

func TestAReaderWaitsForASecondAndIsThenRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Bytes: 100})
		held := begin(t, r, 100)
		start := time.Now()
		var late Hold
		if err := late.Begin(t.Context(), r, 1); !errors.Is(err, ErrFull) || time.Since(start) != time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		late.Free()
		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := late.Begin(gone, r, 1); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		held.Free()
		if s := r.State(); s != (State{Refused: 1}) {
			t.Errorf("left: %+v", s)
		}
	})
}

func TestWhatASlowClientHasNotSentYetMayBeHadByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Bytes: 8 * Chunk, Wait: 2 * time.Second})
		announced := begin(t, r, 8*Chunk)
		start := time.Now()
		other := begin(t, r, Chunk)
		if time.Since(start) != slow || r.State().Bytes != First+Chunk {
			t.Errorf("it began after %s, %+v", time.Since(start), r.State())
		}
		if err := announced.Need(t.Context(), 3*Chunk); err != nil || r.State().Bytes != 4*Chunk {
			t.Errorf("what comes all the same is counted: %v, %+v", err, r.State())
		}
		announced.Read(8 * Chunk)
		if r.State().Bytes != 9*Chunk {
			t.Errorf("%+v", r.State())
		}
		announced.Free()
		other.Free()
		if s := r.State(); s != (State{}) {
			t.Errorf("left: %+v", s)
		}
	})
}

func TestAMessageThatHasBegunGoesBeforeThoseThatHaveNotAndMayFillTwiceTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Bytes: Chunk})
		a := begin(t, r, -1)
		if err := a.Need(t.Context(), 2*Chunk); err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 2)
		var b Hold
		go func() {
			if b.Begin(t.Context(), r, 1) == nil {
				order <- "new"
			}
		}()
		synctest.Wait()
		go func() {
			if a.Need(t.Context(), 3*Chunk) == nil {
				order <- "begun"
			}
		}()
		synctest.Wait()
		if len(order) != 0 || r.State().Bytes != 2*Chunk {
			t.Fatalf("%d went on, %+v", len(order), r.State())
		}
		r.give(1, 0) // as if another message had ended
		if got := <-order; got != "begun" {
			t.Errorf("first goes the one that is %s", got)
		}
		r.held.Add(1)
		a.Free()
		<-order
		b.Free()
		if s := r.State(); s != (State{}) {
			t.Errorf("left: %+v", s)
		}
	})
}

func TestLargeMessagesAreReadSoManyAtATimeAndSlowOnesGiveTheirPlaceUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Bytes: 1 << 30, Reads: 2, Wait: 10 * time.Second})
		a, b := begin(t, r, Small+1), begin(t, r, -1)
		small := begin(t, r, Small)
		start := time.Now()
		c := begin(t, r, Small+1)
		synctest.Wait() // both slow ones have
		if time.Since(start) != slow || r.State().Reads != 1 {
			t.Errorf("it began after %s, %+v", time.Since(start), r.State())
		}
		for _, h := range []*Hold{a, b, c} {
			h.Read(Small)
		}
		if s := r.State(); s.Reads != 0 || s.Bytes != 4*Small {
			t.Errorf("%+v", s)
		}
		for _, h := range []*Hold{a, b, c, small} {
			h.Free()
		}
	})
}

func TestNoMoreWaitThanWhatMayBeHeldOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Bytes: 1})
		held := begin(t, r, 1)
		var refused atomic.Int64
		for range leastWaiting + 3 {
			go func() {
				var h Hold
				start := time.Now()
				if errors.Is(h.Begin(t.Context(), r, 1), ErrFull) && time.Since(start) == 0 {
					refused.Add(1)
				}
			}()
		}
		synctest.Wait()
		if refused.Load() != 3 || r.State().Waiting != leastWaiting {
			t.Errorf("%d were refused at once, %+v", refused.Load(), r.State())
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // time is free here
		held.Free()
		if s := r.State(); s.Bytes != 0 || s.Waiting != 0 {
			t.Errorf("left: %+v", s)
		}
	})
}

func TestARoomThatIsNilHasRoomForEverything(t *testing.T) {
	var h Hold
	if err := h.Begin(t.Context(), nil, 1<<40); err != nil {
		t.Error(err)
	}
	if err := h.Need(t.Context(), 1<<50); err != nil {
		t.Error(err)
	}
	h.Read(7)
	h.Free()
	var r *Room
	r.Charge(5)
	r.Discharge(5)
	h.Answered()
}

func TestSmallMessagesAreReadBesideAnswersUntilTwiceTheBoundIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 8 * Chunk
		r := New(Options{Bytes: bound})
		answered := begin(t, r, 5*Chunk) // of a message that has its answer
		answered.Read(5 * Chunk)
		answered.Answered()
		answered.Answered()
		r.Charge(4 * Chunk)
		start := time.Now()
		small := begin(t, r, Small)
		if time.Since(start) != 0 {
			t.Errorf("it waited for %s", time.Since(start))
		}
		var h Hold
		if err := h.Begin(t.Context(), r, Small+1); !errors.Is(err, ErrFull) {
			t.Errorf("a larger one: %v", err)
		}
		r.Charge(7 * Chunk)
		if err := h.Begin(t.Context(), r, 1); !errors.Is(err, ErrFull) {
			t.Errorf("beyond twice the bound: %v", err)
		}
		r.Discharge(11 * Chunk)
		answered.Free()
		small.Free()
		if s := r.State(); s != (State{Refused: 2}) || r.answers.Load() != 0 {
			t.Errorf("left: %+v, of answers %d", s, r.answers.Load())
		}
	})
}

func TestMessagesAloneKeepSmallOnesOutAsSoonAsTheyFillTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Bytes: Chunk})
		messages := begin(t, r, Chunk)
		messages.Read(Chunk)
		r.Charge(1)
		got := make(chan error, 1)
		var small Hold
		go func() { got <- small.Begin(t.Context(), r, 1) }()
		synctest.Wait()
		if len(got) != 0 {
			t.Fatal("it was read")
		}
		messages.Answered() // now it is its client that fills the room
		synctest.Wait()
		select {
		case err := <-got:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("it waits on")
		}
		r.Discharge(1)
		messages.Free()
		small.Free()
	})
}

func TestSmallMessagesDoNotWaitBehindLargeOnesThatAnswersKeepOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Bytes: Chunk})
		r.Charge(Chunk)
		var refused atomic.Int64
		for range leastWaiting {
			go func() {
				var h Hold
				if errors.Is(h.Begin(t.Context(), r, 2*Small), ErrFull) {
					refused.Add(1)
				}
			}()
		}
		synctest.Wait()
		start := time.Now()
		small := begin(t, r, 1)
		if time.Since(start) != 0 || r.State().Waiting != leastWaiting {
			t.Errorf("it was read after %s, %+v", time.Since(start), r.State())
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // time is free here
		if refused.Load() != leastWaiting {
			t.Errorf("%d large ones were refused", refused.Load())
		}
		small.Free()
		r.Discharge(Chunk)
	})
}

// Whatever readers do, nothing is held in the end, never more than twice the bound and a chunk each, and nobody waits for ever.
func TestWhateverReadersDoTheRoomIsAsItWas(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		bytes := int64(rapid.IntRange(4*Chunk, 20*Chunk).Draw(rt, "bound"))
		n := rapid.IntRange(1, 40).Draw(rt, "readers")
		synctest.Test(t, func(t *testing.T) {
			r := New(Options{Bytes: bytes, Reads: 3})
			var wg sync.WaitGroup
			var over int64
			done := make(chan struct{})
			for i := range n {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // a test
					for range 5 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(3000))*time.Millisecond)
						var h Hold
						size := rnd.IntN(4 * Chunk)
						if h.Begin(ctx, r, size) == nil {
							whole := true
							for at := Chunk; at < size && whole; at += Chunk {
								whole = h.Need(ctx, min(at+Chunk, size)) == nil
							}
							time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond) //nolint:forbidigo // time is free here
							if whole && rnd.IntN(2) == 0 {
								h.Read(size)
							}
						}
						h.Free()
						cancel()
					}
				})
			}
			go func() { wg.Wait(); close(done) }()
			// It is looked at while all readers rest: before they do, it counts also what some only ask for.
			for tick := time.NewTicker(50 * time.Millisecond); ; {
				select {
				case <-tick.C:
					synctest.Wait()
					if held := r.State().Bytes; held > 2*bytes+Chunk {
						over = held
					}
					continue
				case <-done:
				}
				tick.Stop()
				break
			}
			if s := r.State(); s.Bytes != 0 || s.Reads != 0 || s.Waiting != 0 || over != 0 {
				t.Errorf("left: %+v, once held %d", s, over)
			}
		})
	})
}

func BenchmarkRoomForASmallMessage(b *testing.B) {
	r := New(Options{Bytes: 1 << 30})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			var h Hold
			_ = h.Begin(context.Background(), r, 64)
			h.Read(64)
			h.Free()
		}
	})
}

func BenchmarkRoomForALargeMessage(b *testing.B) {
	r := New(Options{Bytes: 1 << 30})
	b.ReportAllocs()
	for b.Loop() {
		var h Hold
		_ = h.Begin(b.Context(), r, 200_000)
		h.Read(200_000)
		h.Free()
	}
}
