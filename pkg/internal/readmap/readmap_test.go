package readmap

import (
	"maps"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func always[V any](v V) func(int) (V, bool) {
	return func(int) (V, bool) { return v, true }
}

func TestItAnswersLikeAPlainMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Map[int, int]
		model := map[int]int{}
		key := rapid.IntRange(0, 200)
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				k := key.Draw(t, "k")
				got, ok := m.Get(k)
				if want, has := model[k]; got != want || ok != has {
					t.Fatalf("Get(%d) = %d, %v; want %d, %v", k, got, ok, want, has)
				}
			},
			"add": func(t *rapid.T) {
				k, v := key.Draw(t, "k"), rapid.Int().Draw(t, "v")
				want, has := model[k]
				if !has {
					want, model[k] = v, v
				}
				size := len(model)
				got := m.GetOrAdd(k, func(n int) (int, bool) {
					if n != size-1 {
						t.Fatalf("told of %d entries, there are %d", n, size-1)
					}
					return v, true
				})
				if got != want {
					t.Fatalf("GetOrAdd(%d) = %d, want %d", k, got, want)
				}
			},
			"refuse": func(t *rapid.T) {
				k := key.Draw(t, "k")
				want, has := model[k]
				if !has {
					want = -1
				}
				if got := m.GetOrAdd(k, func(int) (int, bool) { return -1, false }); got != want {
					t.Fatalf("GetOrAdd(%d) = %d, want %d", k, got, want)
				}
			},
			"filter": func(t *rapid.T) {
				mod := rapid.IntRange(1, 5).Draw(t, "mod")
				drop := func(k, _ int) bool { return k%mod == 0 }
				before := len(model)
				maps.DeleteFunc(model, drop)
				if got := m.Filter(func(k, v int) bool { return !drop(k, v) }); got != before-len(model) {
					t.Fatalf("Filter dropped %d, want %d", got, before-len(model))
				}
			},
			"": func(t *rapid.T) {
				if m.Len() != len(model) {
					t.Fatalf("Len %d, want %d", m.Len(), len(model))
				}
				if got := maps.Collect(m.All); !maps.Equal(got, model) {
					t.Fatalf("All gives %v, want %v", got, model)
				}
			},
		})
	})
}

func TestMapsThatHaveSettledAreReadWithoutTheLock(t *testing.T) {
	var m Map[int, int]
	const n = 1000
	for i := range n {
		m.GetOrAdd(i, always(i))
	}
	for range 2 {
		for i := range n {
			m.Get(i)
		}
	}
	m.mu.Lock() // a reader that needs it would hang
	defer m.mu.Unlock()
	for i := range n {
		if v, ok := m.Get(i); !ok || v != i {
			t.Fatalf("Get(%d) = %d, %v", i, v, ok)
		}
	}
}

func TestOneOfManyConcurrentAdditionsWins(t *testing.T) {
	var m Map[int, *int]
	var g sync.WaitGroup
	got := make([]*int, 8)
	for i := range got {
		g.Go(func() {
			for k := range 200 {
				v := m.GetOrAdd(k, always(new(int)))
				if k == 7 {
					got[i] = v
				}
				if again, ok := m.Get(k); !ok || again == nil {
					t.Errorf("what was added is not there")
				}
			}
		})
	}
	g.Wait()
	for _, v := range got {
		if v != got[0] {
			t.Fatal("two values for one key")
		}
	}
}

func BenchmarkGet(b *testing.B) {
	type key struct{ a, b, c string }
	var m Map[key, int]
	k := key{"fraud", "model_v1", "triton"}
	m.GetOrAdd(k, always(1))
	b.ReportAllocs()
	for b.Loop() {
		m.Get(k)
	}
}
