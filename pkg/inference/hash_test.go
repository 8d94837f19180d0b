package inference

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestAHashIsTheSameInEveryRelease(t *testing.T) {
	// A change of any of these moves users of running experiments to other versions.
	for _, c := range []struct {
		key, salt string
		hash      uint32
		bucket    int
	}{
		{"", "", 0xb9034ad3, 7227},
		{"user-1", "", 0x8dcd1b30, 5539},
		{"user-1", "fraud", 0x62a35c2b, 3853},
		{"zoë", "fraud-2026-11", 0x3771f433, 2165},
	} {
		if got := Hash(c.key, c.salt); got != c.hash || Bucket(c.key, c.salt) != c.bucket {
			t.Errorf("%q with salt %q: hash %#x, bucket %d", c.key, c.salt, got, Bucket(c.key, c.salt))
		}
	}
	if Hash("ab", "c") == Hash("b", "ca") || Hash("a", "b") == Hash("ab", "") {
		t.Error("key and salt run into each other")
	}
}

func TestBucketsAreFilledEvenlyAndIndependentlyOfTheSalt(t *testing.T) {
	const users, cells = 200_000, 100
	both := make([]int, cells*cells)
	one := make([]int, cells)
	for i := range users {
		id := fmt.Sprint("user-", i)
		a, b := Bucket(id, "a")/100, Bucket(id, "b")/100
		one[a]++
		both[a*cells+b]++
	}
	for name, counts := range map[string][]int{"one": one, "both": both} {
		want := float64(users) / float64(len(counts))
		chi2 := 0.0
		for _, n := range counts {
			chi2 += (float64(n) - want) * (float64(n) - want) / want
		}
		free := float64(len(counts) - 1)
		if math.Abs(chi2-free) > 5*math.Sqrt(2*free) {
			t.Errorf("%s: chi² is %.0f with %.0f degrees of freedom", name, chi2, free)
		}
	}
}

// shares draws shares that make up 100, and which of them takes the rest.
func shares(t *rapid.T, most int) ([]float64, int) {
	n := rapid.IntRange(1, most).Draw(t, "n")
	all, left := make([]float64, n), 100
	rest := rapid.IntRange(0, n-1).Draw(t, "rest")
	for i := range all {
		if i != rest {
			part := rapid.IntRange(0, left).Draw(t, "share")
			all[i], left = float64(part), left-part
		}
	}
	all[rest] = float64(left)
	return all, rest
}

func TestSpansCoverAllHashesOnceAndHaveTheirShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, rest := shares(t, 8)
		spans := Spans(all, rest)
		var sum uint64
		for i, s := range spans {
			width := s.High - s.Low
			sum += width
			if math.Abs(float64(width)-all[i]/100*(1<<32)) > float64(len(all)) {
				t.Fatalf("share %v has %v", all[i], s)
			}
			for j, o := range spans[:i] {
				if s.Low < o.High && o.Low < s.High {
					t.Fatalf("%d %v and %d %v overlap", i, s, j, o)
				}
			}
		}
		if sum != 1<<32 {
			t.Fatalf("spans hold %d hashes", sum)
		}
	})
}

// belongs gives which span has a hash.
func belongs(spans []Span, hash uint32) int {
	for i, s := range spans {
		if s.Holds(hash) {
			return i
		}
	}
	return -1
}

func TestAShareThatGrowsKeepsItsUsersAndTakesOnlyFromTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, rest := shares(t, 3)
		i := rapid.IntRange(0, len(before)-1).Draw(t, "i")
		if i == rest || before[rest] == 0 {
			return
		}
		after := append([]float64(nil), before...)
		by := float64(rapid.IntRange(1, int(before[rest])).Draw(t, "by"))
		after[i] += by
		after[rest] -= by
		a, b := Spans(before, rest), Spans(after, rest)
		for range 200 {
			h := rapid.Uint32().Draw(t, "hash")
			was, is := belongs(a, h), belongs(b, h)
			if was != is && (was != rest || is != i) {
				t.Fatalf("%v → %v moves hash %#x from %d to %d", before, after, h, was, is)
			}
		}
	})
}

func TestATargetAddedAtTheEndTakesOnlyFromTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, rest := shares(t, 6)
		by := float64(rapid.IntRange(0, int(before[rest])).Draw(t, "by"))
		after := append(append([]float64(nil), before...), by)
		after[rest] -= by
		a, b := Spans(before, rest), Spans(after, rest)
		for range 100 {
			h := rapid.Uint32().Draw(t, "hash")
			was, is := belongs(a, h), belongs(b, h)
			if was != is && (was != rest || is != len(before)) {
				t.Fatalf("%v → %v moves hash %#x from %d to %d", before, after, h, was, is)
			}
		}
	})
}

func BenchmarkHash(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = Hash("user-1234567", "fraud-2026-11")
	}
}
