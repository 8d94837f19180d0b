package cases

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/luavm"
)

// Result is how one case went.
type Result struct {
	Name   string         `json:"name"`
	Line   int            `json:"line"`
	Passed bool           `json:"passed"`
	Got    string         `json:"got"`              // what the script answered, in words
	Want   string         `json:"want"`             // what it had to answer
	Why    string         `json:"why,omitempty"`    // the script's error
	At     int            `json:"at,omitempty"`     // and its line in the script
	Counts map[string]int `json:"counts,omitempty"` // of a share: users by target
}

// User is the n-th user of a share: u1 for 0.
func User(n int) string { return "u" + strconv.Itoa(n+1) }

// Run runs the script on every case. The error is that of ctx, and results are those until then.
func (f *File) Run(ctx context.Context, s *luavm.Script) ([]Result, error) {
	results := make([]Result, 0, len(f.Cases))
	for i := range f.Cases {
		if err := ctx.Err(); err != nil {
			return results, err
		}
		c := &f.Cases[i]
		var r Result
		var err error
		if c.Users > 0 {
			r, err = c.share(ctx, s)
		} else {
			r, err = c.run(ctx, s)
		}
		if err != nil {
			return results, err
		}
		results = append(results, r)
	}
	return results, nil
}

// Failures tells of the results that did not pass, as problems of the file.
func (f *File) Failures(results []Result) luavm.Problems {
	var problems luavm.Problems
	for _, r := range results {
		if r.Passed {
			continue
		}
		if len(problems) == maxProblems {
			break
		}
		message := fmt.Sprintf("%q: wanted %s, got %s", clip(r.Name), r.Want, r.Got)
		if r.Why != "" {
			message += ": " + r.Why
		}
		if r.At > 0 {
			message += fmt.Sprintf(" (line %d of the script)", r.At)
		}
		problems = append(problems, luavm.Problem{Name: f.Name, Line: r.Line, Message: message})
	}
	return problems
}

// run runs a single call.
func (c *Case) run(ctx context.Context, s *luavm.Script) (Result, error) {
	r := Result{Name: c.Name, Line: c.Line, Want: c.Want.String()}
	got, err := s.Run(ctx, c.Call.Input())
	outcome, line, why, err := ended(got, err)
	if err != nil {
		return r, err
	}
	r.Got = Want{Target: got.Target, Reason: got.Reason, Outcome: outcome}.String()
	if outcome > luavm.NoKey {
		r.Why, r.At = why, line
	}
	r.Passed = got.Target == c.Want.Target && outcome == c.Want.outcome() && (c.Want.Reason == "" || c.Want.Reason == got.Reason)
	return r, nil
}

// outcome is how the run must end.
func (w Want) outcome() luavm.Outcome {
	if w.Target != "" {
		return luavm.OK
	}
	return w.Outcome
}

// String is the answer in words.
func (w Want) String() string {
	switch {
	case w.Target != "" && w.Reason != "":
		return fmt.Sprintf("%s (%s)", clip(w.Target), clip(w.Reason))
	case w.Target != "":
		return clip(w.Target)
	}
	return w.Outcome.String()
}

// share runs the call for many users. It ends at the first of them for whom the run fails.
func (c *Case) share(ctx context.Context, s *luavm.Script) (Result, error) {
	r := Result{Name: c.Name, Line: c.Line, Counts: make(map[string]int)}
	in := c.Call.Input()
	for n := range c.Users {
		if n%64 == 0 && ctx.Err() != nil { // a short run does not look
			return r, ctx.Err()
		}
		in.User = User(n)
		got, err := s.Run(ctx, in)
		outcome, line, why, err := ended(got, err)
		if err != nil {
			return r, err
		}
		if outcome > luavm.NoOpinion {
			r.Got, r.Why, r.At = fmt.Sprintf("%s for user %s", outcome, in.User), why, line
			break
		}
		r.Counts[got.Target]++
	}
	var want, have []string
	passed := r.Got == ""
	for _, share := range c.Shares {
		part := 100 * float64(r.Counts[share.Target]) / float64(c.Users)
		want = append(want, fmt.Sprintf("%s %s%% ± %s%%", clip(share.Target), short(share.Percent), short(share.Margin)))
		have = append(have, fmt.Sprintf("%s %s%%", clip(share.Target), short(part)))
		passed = passed && math.Abs(part-share.Percent) <= share.Margin+1e-9
	}
	slices.Sort(want)
	slices.Sort(have)
	if r.Want = strings.Join(want, ", "); r.Got == "" {
		r.Got = strings.Join(have, ", ")
	}
	r.Passed = passed
	return r, nil
}

func short(v float64) string { return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64) }

// ended says how a run ended; the error is that of its context.
func ended(d luavm.Decision, err error) (outcome luavm.Outcome, line int, why string, ctxErr error) {
	var failed *luavm.RunError
	switch {
	case errors.As(err, &failed):
		return failed.Outcome, failed.Line, failed.Message, nil
	case err != nil:
		return 0, 0, "", err
	case d.Target == "":
		return luavm.NoOpinion, 0, "", nil
	}
	return luavm.OK, 0, "", nil
}
