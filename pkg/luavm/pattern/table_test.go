package pattern_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/model-gateway/model-gateway/pkg/luavm/pattern"
)

// TestTheTableFindsWhatTryingFinds compares the two ways of matching, on subjects longer than a word of the table.
func TestTheTableFindsWhatTryingFinds(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 6_000 {
		lua, s := randomPattern(r, 7), randomSubject(r, 30)
		if r.IntN(3) == 0 {
			s = strings.Repeat(s, 1+r.IntN(8))
		}
		if r.IntN(3) == 0 {
			s += strings.Repeat(pick(r, "a", "b", " ", "(", "ab"), r.IntN(140)) + randomSubject(r, 10)
		}
		compareWays(t, lua, s, r.IntN(len(s)+1))
	}
}

func compareWays(t *testing.T, lua, s string, init int) {
	t.Helper()
	p, err := pattern.Compile(lua)
	if err != nil {
		return
	}
	tried, ok := p.Matches(s, init, false)
	if !ok {
		return
	}
	looked, _ := p.Matches(s, init, true)
	if d := cmp.Diff(tried, looked); d != "" {
		t.Errorf("%q in %q from %d: by trying (-), by the table (+):\n%s", lua, s, init, d)
	}
}
