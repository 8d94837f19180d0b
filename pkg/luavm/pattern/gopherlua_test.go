package pattern_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/yuin/gopher-lua/pm"

	"github.com/model-gateway/model-gateway/pkg/luavm/pattern"
)

// TestMatchesAsGopherLua compares with the matcher that this one stands in for, where that is faithful to Lua: it has no
// %f, and reads some odd sets differently.
func TestMatchesAsGopherLua(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	compared := 0
	for range 40_000 {
		lua, s := randomPattern(r, 6), randomSubject(r, 18)
		if strings.Contains(lua, "%f") || strings.Contains(lua, "[") {
			continue
		}
		p, err := pattern.Compile(lua)
		if err != nil {
			continue
		}
		init := r.IntN(len(s) + 1)
		theirs, err := pm.Find(lua, []byte(s), init, -1)
		if err != nil {
			t.Fatalf("%q in %q: gopher-lua refuses: %v", lua, s, err)
		}
		var want []pattern.Match
		for _, m := range theirs {
			w := pattern.Match{Start: m.Capture(0), End: m.Capture(1)}
			for i := 2; i < m.CaptureLength(); i += 2 {
				c := pattern.Capture{Start: m.Capture(i), End: m.Capture(i + 1), Position: m.IsPosCapture(i)}
				if c.Position {
					c.Start--
					c.End = c.Start
				}
				w.Captures = append(w.Captures, c)
			}
			want = append(want, w)
		}
		got, ok := p.Matches(s, init, r.IntN(2) == 0)
		if !ok {
			t.Fatalf("%q in %q takes too long", lua, s)
		}
		compared++
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q in %q from %d: gopher-lua's (-), ours (+):\n%s", lua, s, init, d)
		}
	}
	if compared < 10_000 {
		t.Errorf("only %d were compared", compared)
	}
}
