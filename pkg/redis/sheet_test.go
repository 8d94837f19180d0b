package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

func drawOf(model, user string, burst, cost float64) limit.Draw {
	return limit.Draw{Key: limit.ModelBase(model, "l").For(user), Rate: inference.Rate{Burst: burst}, Cost: cost}
}

func asking(mode byte, draws ...limit.Draw) *question {
	return newQuestion(mode, draws, time.Now().Add(time.Minute))
}

func TestAKeyThatManyAskForIsSentOnce(t *testing.T) {
	s := newSheet("p:", false)
	for i := range 10 {
		if !s.add(asking(modeDraw, drawOf("m", "all", 100, 1), drawOf("m", strconv.Itoa(i), 5, 1))) {
			t.Fatalf("no room for question %d", i)
		}
	}
	cmd := s.command(context.Background(), "evalsha", "hash")
	if keys := cmd.Args()[2]; keys != 11 || len(cmd.Args()) != beforeKeys+11+2 {
		t.Errorf("%v keys in %d arguments, want 11 keys", keys, len(cmd.Args()))
	}
	if got := fmt.Sprint(cmd.Args()[beforeKeys]); got != "p:limit:{m}:l:all" {
		t.Errorf("the first key is %q", got)
	}
}

func TestQuestionsThatDisagreeAboutARateAreNotOnOneSheet(t *testing.T) {
	s := newSheet("p:", false)
	s.add(asking(modeDraw, drawOf("m", "ann", 5, 1)))
	calls := slices.Clone(s.calls)
	if s.add(asking(modeDraw, drawOf("m", "new", 7, 1), drawOf("m", "ann", 6, 1))) {
		t.Fatal("a bucket has two rates")
	}
	if !slices.Equal(s.calls, calls) || len(s.rates) != 1 || len(s.places) != 1 || s.draws != 1 || len(s.questions) != 1 {
		t.Errorf("what was not added left something behind: %+v", s)
	}
	if !s.add(asking(modeDraw, drawOf("m", "new", 8, 1), drawOf("m", "ann", 5, 1))) {
		t.Error("a question that agrees is not taken")
	}
}

func TestASheetHasKeysOfOneSlotInAClusterAndNotTooManyAnywhere(t *testing.T) {
	for _, oneTag := range []bool{true, false} {
		s := newSheet("p:", oneTag)
		s.add(asking(modeDraw, drawOf("a", "ann", 5, 1)))
		if got := s.add(asking(modeDraw, drawOf("b", "ann", 5, 1))); got == oneTag {
			t.Errorf("in a cluster: %v; another model was taken: %v", oneTag, got)
		}
	}
	s, n := newSheet("p:", false), 0
	for s.add(asking(modeDraw, drawOf("m", strconv.Itoa(n), 5, 1))) {
		n++
	}
	if n != maxKeys {
		t.Errorf("%d keys on a sheet, want %d", n, maxKeys)
	}
	s.clear()
	if !s.add(asking(modeDraw, drawOf("m", "0", 6, 1))) || len(s.rates) != 1 {
		t.Error("a sheet that was cleared remembers something")
	}
}

// Those who go together are answered as if each had gone alone: a store in memory is asked the same one after another.
func TestQuestionsThatGoTogetherAreAnsweredAsIfEachWentAlone(t *testing.T) {
	s := redistest.Start(t)
	c, err := Open(Options{Addresses: []string{s.Addr}, Timeout: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	batch, l, model := &c.breakers[0].batch, &lane{}, 0
	rapid.Check(t, func(r *rapid.T) {
		model++
		memory := limit.NewMemory(limit.MemoryOptions{})
		burst := map[string]float64{}
		for range rapid.IntRange(1, 3).Draw(r, "batches") {
			l.questions = nil
			for range rapid.IntRange(1, 12).Draw(r, "questions") {
				l.questions = append(l.questions, anyQuestion(r, strconv.Itoa(model), burst))
			}
			if err := batch.send(within{context.Background(), time.Now().Add(time.Minute)}, l); err != nil {
				r.Fatal(err)
			}
			for i, q := range l.questions {
				if want := askMemory(r, memory, q); !slices.Equal(q.held, want) {
					r.Fatalf("question %d of mode %d is told %v, want %v", i, q.mode, q.held, want)
				}
			}
		}
	})
}

// anyQuestion asks for some of four buckets that do not fill; burst remembers theirs.
func anyQuestion(r *rapid.T, model string, burst map[string]float64) *question {
	mode := rapid.SampledFrom([]byte{modeDraw, modeDraw, modeDraw, modePeek, modeLease}).Draw(r, "mode")
	users := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 1, 4, rapid.ID).Draw(r, "users")
	if mode == modeLease {
		users = users[:1]
	}
	var draws []limit.Draw
	for _, user := range users {
		if burst[user] == 0 {
			burst[user] = rapid.Float64Range(1, 12).Draw(r, "burst")
		}
		d := drawOf(model, user, burst[user], float64(rapid.IntRange(0, 6).Draw(r, "cost")))
		d.Shadow = rapid.Bool().Draw(r, "shadow")
		if mode == modeLease {
			d.Cost, d.Shadow = d.Cost+1, false
		}
		draws = append(draws, d)
	}
	return asking(mode, draws...)
}

// askMemory asks q of memory and gives what the buckets held before.
func askMemory(r *rapid.T, memory *limit.Memory, q *question) []float64 {
	ctx := context.Background()
	before := slices.Clone(q.draws)
	_, err := memory.Peek(ctx, before)
	switch q.mode {
	case modeDraw:
		_, err = memory.Draw(ctx, slices.Clone(q.draws))
	case modeLease:
		_, err = memory.Lease(ctx, q.draws[0].Key, q.draws[0].Rate, q.draws[0].Cost)
	}
	if err != nil {
		r.Fatal(err)
	}
	var held []float64
	for _, d := range before {
		held = append(held, d.Left)
	}
	return held
}
