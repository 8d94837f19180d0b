package cases

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/model-gateway/model-gateway/pkg/luavm"
)

// Bounds on a file of recorded calls.
const (
	MaxRecorded = 100_000   // calls
	maxLine     = 256 << 10 // bytes
)

// Format names what the first line of a file of recorded calls says.
const Format = "model-gateway calls 1"

// Head is the first line of a file of recorded calls.
type Head struct {
	Format string `json:"format"`
	// Users is "hashed": in place of each user stands the same salted hash, so what rules make of single users is
	// approximate.
	Users string `json:"users"`
	Calls int    `json:"calls"`
}

// HashedUsers is the only way users are exported.
const HashedUsers = "hashed"

// Write writes calls, a line of JSON each, under a head.
func Write(w io.Writer, h Head, calls []Call) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(h); err != nil {
		return err
	}
	for i := range calls {
		if err := e.Encode(&calls[i]); err != nil {
			return err
		}
	}
	return nil
}

// Read reads what Write wrote. A file without a head is calls alone. Errors name the line.
func Read(r io.Reader) (Head, []Call, error) {
	var h Head
	var calls []Call
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4<<10), maxLine)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if n == 1 && bytes.Contains(line, []byte(`"format"`)) {
			if err := strict(line, &h); err != nil || h.Format != Format {
				return h, nil, fmt.Errorf("line 1: %q is no format that is understood here; wanted %q", clip(h.Format), Format)
			}
			continue
		}
		if len(calls) == MaxRecorded {
			return h, nil, fmt.Errorf("line %d: more than %d calls", n, MaxRecorded)
		}
		var c Call
		if err := strict(line, &c); err != nil {
			return h, nil, fmt.Errorf("line %d: %w", n, err)
		}
		for k, v := range c.Params {
			if number, ok := v.(json.Number); ok {
				c.Params[k] = numeric(number)
			}
		}
		calls = append(calls, c)
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line is longer than %d KiB", maxLine>>10)
		}
		return h, nil, err
	}
	return h, calls, nil
}

func strict(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	d.UseNumber()
	return d.Decode(v)
}

func numeric(n json.Number) any {
	if i, err := n.Int64(); err == nil {
		return i
	}
	f, _ := n.Float64()
	return f
}

// Replayed is what became of recorded calls under a new version of a script.
type Replayed struct {
	Calls        int            `json:"calls"`
	Changed      int            `json:"changed"`        // decided otherwise than by the version before
	Failed       int            `json:"failed"`         // runs of the new version that failed
	FailedBefore int            `json:"failed_before"`  // of the version before
	NoKey        int            `json:"no_key"`         // of the new version
	Before       map[string]int `json:"targets_before"` // calls by target; "" for none
	After        map[string]int `json:"targets"`
	Examples     []Change       `json:"examples"`       // of changes and failures, a few
	Cut          bool           `json:"cut,omitempty"`  // time ran out before all calls were replayed
	Note         string         `json:"note,omitempty"` // what to keep in mind
}

// Change is one call that is decided otherwise, or fails.
type Change struct {
	Call   int    `json:"call"` // its number, from 1
	User   string `json:"user,omitempty"`
	Before string `json:"before"`
	After  string `json:"after"`
	Why    string `json:"why,omitempty"` // the error of the new version
}

const maxExamples = 10

// Replay runs both versions on each call; before is nil where there was none. known, where set, tells whether the new
// version may answer a target; one that it may not answer is a failure. stats, where set, answers stats(target). When ctx
// ends, the rest is left out and Cut set.
func Replay(ctx context.Context, calls []Call, before, after *luavm.Script, known func(c *Call, target string) bool, stats func(c *Call, target string) (luavm.Stats, bool)) Replayed {
	r := Replayed{Before: make(map[string]int), After: make(map[string]int), Examples: []Change{}}
	for i := range calls {
		c := &calls[i]
		in := c.Input()
		if stats != nil && in.Stats == nil {
			in.Stats = func(target string) (luavm.Stats, bool) { return stats(c, target) }
		}
		was, gone, ok := answer(ctx, before, in)
		now, failed, ok2 := answer(ctx, after, in)
		if !ok || !ok2 || ctx.Err() != nil {
			r.Cut = true
			break
		}
		if failed == nil && now.Target != "" && known != nil && !known(c, now.Target) {
			failed = &luavm.RunError{Outcome: luavm.Error, Message: fmt.Sprintf("%q is no target of model %q", clip(now.Target), clip(c.Model))}
			now = luavm.Decision{}
		}
		r.add(i, c, was, now, gone, failed)
	}
	return r
}

func (r *Replayed) add(i int, c *Call, was, now luavm.Decision, gone, failed *luavm.RunError) {
	r.Calls++
	bad := blames(failed)
	switch {
	case bad:
		r.Failed++
	case failed != nil && failed.Outcome == luavm.NoKey:
		r.NoKey++
	}
	if blames(gone) {
		r.FailedBefore++
	}
	r.Before[was.Target]++
	r.After[now.Target]++
	if was.Target != now.Target {
		r.Changed++
	}
	if (was.Target != now.Target || bad) && len(r.Examples) < maxExamples {
		change := Change{Call: i + 1, User: c.User, Before: was.Target, After: now.Target}
		if bad {
			change.Why = failed.Error()
		}
		r.Examples = append(r.Examples, change)
	}
}

// blames reports whether a run failed by its script, and not by what the call has or has not.
func blames(e *luavm.RunError) bool {
	return e != nil && e.Outcome != luavm.NoKey && e.Outcome != luavm.TooLong
}

// answer runs s, which may be nil; ok is false when ctx ended.
func answer(ctx context.Context, s *luavm.Script, in *luavm.Input) (luavm.Decision, *luavm.RunError, bool) {
	if s == nil {
		return luavm.Decision{}, nil, ctx.Err() == nil
	}
	d, err := s.Run(ctx, in)
	var failed *luavm.RunError
	switch {
	case err == nil:
		return d, nil, true
	case errors.As(err, &failed):
		return luavm.Decision{}, failed, true
	}
	return d, nil, false
}
