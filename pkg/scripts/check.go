package scripts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/luavm"
	"github.com/model-gateway/model-gateway/pkg/scripts/cases"
)

// Variables for tests alone, in which a machine that stalls is no reason to refuse a version.
var (
	casesWithin  = 3 * time.Second
	replayWithin = time.Second
)

const (
	// enoughCalls is how many recorded calls say something, and mostFailed the part of them, in percent, that may fail.
	enoughCalls = 10
	mostFailed  = 50
)

// checked is what became of a version that was judged.
type checked struct {
	script   *luavm.Script
	problems luavm.Problems
	replay   *cases.Replayed // nil where there was nothing to replay
	cases    int             // that were run
}

// judge says whether a version may run: everything that is wrong with it, at once. before is the version that runs, nil
// for none. withCases runs the cases; who goes back to an older version does not, since they are written for the newer.
func (s *Store) judge(ctx context.Context, u *unit, source []byte, before *version, withCases bool) checked {
	ctx = context.WithoutCancel(ctx) // whole, even if whoever asked leaves meanwhile
	var c checked
	name := u.name + suffix
	var script *luavm.Script
	var err error
	if len(source) <= MaxSource {
		script, err = luavm.Compile(name, source, s.limits())
	}
	var problems luavm.Problems
	switch {
	case len(source) > MaxSource: // how many is not known: no more than that has been read
		c.problems = append(c.problems, luavm.Problem{Name: name, Message: fmt.Sprintf("has more than %d bytes, and so many are read: keep long lists in metadata or headers", MaxSource)})
	case errors.As(err, &problems):
		c.problems = append(c.problems, problems...)
	case err != nil:
		c.problems = append(c.problems, luavm.Problem{Name: name, Message: err.Error()})
	case len(bytes.TrimSpace(source)) == 0:
		c.problems = append(c.problems, luavm.Problem{Name: name, Message: "is empty; write it, or let it say: -- no script"})
	case noScript(source):
		c.problems = append(c.problems, luavm.Problem{Name: name, Line: 1, Message: `says that there is no script, which only a file can say; push "return nil" for one without an opinion`})
	default:
		c.script = script
		c.problems = append(c.problems, s.targets(u, script)...)
	}
	if withCases {
		n, problems := s.runCases(ctx, u, c.script)
		c.cases, c.problems = n, append(c.problems, problems...)
	}
	if len(c.problems) == 0 {
		c.replay = s.replay(ctx, u, script, before)
		if p, bad := hopeless(name, c.replay); bad {
			c.problems = append(c.problems, p)
		}
	}
	return c
}

// targets holds the names that a script answers against those there are.
func (s *Store) targets(u *unit, script *luavm.Script) luavm.Problems {
	use := s.use(u.name)
	var problems luavm.Problems
	for _, target := range script.Targets() {
		if use.lets(target) {
			continue
		}
		has := strings.Join(sortedTargets(use), ", ")
		problems = append(problems, luavm.Problem{
			Name: u.name + suffix, Line: lineOf(script.Source, target),
			Message: fmt.Sprintf("answers %q, which is no target of %s; there are: %s", clip(target), models(use), has),
		})
	}
	return problems
}

func sortedTargets(u Use) []string {
	all := slices.Clone(u.Targets)
	slices.Sort(all)
	if all = slices.Compact(all); u.Open {
		all = append(all, "model_v<version>")
	}
	return all
}

func models(u Use) string {
	const most = 5
	names := u.Models
	if len(names) == 0 {
		return "the models that use it"
	}
	more := ""
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	word := "model "
	if len(names) > 1 {
		word = "models "
	}
	return word + strings.Join(names, ", ") + more
}

// lineOf finds the first line on which a text stands in quotes; 0 when none does.
func lineOf(source, text string) int {
	n := 0
	for line := range strings.Lines(source) {
		n++
		if strings.Contains(line, `"`+text+`"`) || strings.Contains(line, "'"+text+"'") {
			return n
		}
	}
	return 0
}

// runCases reads the cases, and runs them where there is a script.
func (s *Store) runCases(ctx context.Context, u *unit, script *luavm.Script) (int, luavm.Problems) {
	name := u.name + cases.Suffix
	switch {
	case u.cases.err != nil:
		return 0, luavm.Problems{unreadable(name, u.cases.err)}
	case u.cases.hash == "":
		return 0, nil
	}
	f, err := cases.Parse(name, u.cases.text)
	if err != nil {
		var problems luavm.Problems
		if errors.As(err, &problems) {
			return 0, problems
		}
		return 0, luavm.Problems{{Name: name, Message: err.Error()}}
	}
	if script == nil {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, casesWithin)
	defer cancel()
	results, err := f.Run(ctx, script)
	problems := f.Failures(results)
	if err != nil {
		problems = append(problems, luavm.Problem{Name: name, Message: fmt.Sprintf("cases take longer than %v; let shares have fewer users", casesWithin)})
	}
	return len(f.Cases), problems
}

// replay runs both versions on what was recorded; nil when nothing was.
func (s *Store) replay(ctx context.Context, u *unit, script *luavm.Script, before *version) *cases.Replayed {
	calls := s.calls.of(u.name)
	if len(calls) == 0 {
		return nil
	}
	var old *luavm.Script
	if before != nil {
		old = before.script
	}
	ctx, cancel := context.WithTimeout(ctx, replayWithin)
	defer cancel()
	r := cases.Replay(ctx, calls, old, script, s.use(u.name).known, nil)
	return &r
}

// hopeless reports whether a version failed on most recorded calls, and on more of them than the one that runs.
func hopeless(name string, r *cases.Replayed) (luavm.Problem, bool) {
	if r == nil || r.Calls < enoughCalls || 100*r.Failed < mostFailed*r.Calls || r.Failed <= r.FailedBefore {
		return luavm.Problem{}, false
	}
	why := ""
	for _, e := range r.Examples {
		if e.Why != "" {
			why = ", such as: " + e.Why
			break
		}
	}
	return luavm.Problem{Name: name, Message: fmt.Sprintf("failed on %d of %d calls that were recorded%s", r.Failed, r.Calls, why)}, true
}
