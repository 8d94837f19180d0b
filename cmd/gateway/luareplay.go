package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/model-gateway/model-gateway/pkg/luavm"
	"github.com/model-gateway/model-gateway/pkg/scripts/cases"
)

// maxCallsFile is what is read of recorded calls.
const maxCallsFile = 256 << 20

// replayFlags are what `gateway lua replay` was asked.
type replayFlags struct {
	adminFlags
	calls, model, against, name string
	running                     bool
	told                        []string
	maxChanged                  string
	deadline                    time.Duration
	asJSON                      bool
}

// luaReplayCommand is `gateway lua replay`: what a script would have decided on recorded calls.
func luaReplayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use: "replay SCRIPT --calls FILE", Short: "Run a script on recorded calls, and show which decisions change",
		Long: `Run a script on calls that a gateway has recorded (GET /scripts/calls on its admin port; a line of JSON each), and show where
they would go. With --against, or --running for the version that a gateway runs under the script's name, also how many are
decided otherwise, and some of them. Without --calls, --running takes the calls from that gateway too.

Users are exported as hashes: what a script makes of single users is then approximate, and the output says so.

Exit status: 0 every run ended well, and no more decisions change than --max-changed allows; 1 otherwise; 2 replay was not
called rightly.`,
		Example: `  curl -s localhost:8081/scripts/calls > calls.jsonl
  gateway lua replay new.lua --calls calls.jsonl --against scripts/lua/canary.lua --model fraud
  gateway lua replay fraud.lua --running --max-changed 5%`,
		Args: arguments("one script"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), args[0])
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.calls, "calls", "", "file of recorded calls; - is the standard input")
	flags.StringVar(&f.model, "model", "", "only calls of this model (default: with --running that of the running script, else all)")
	flags.StringVar(&f.against, "against", "", "script to compare with")
	flags.BoolVar(&f.running, "running", false, "compare with what the gateway at --admin runs")
	flags.StringVar(&f.name, "name", "", "name of the running script (default: the file's, without .lua)")
	flags.StringArrayVar(&f.told, "stats", nil, "what stats(target) answers, target=error_rate:0.2,p99:80ms,calls:500; may be repeated")
	flags.StringVar(&f.maxChanged, "max-changed", "", "exit with 1 when more decisions than this change, such as 5%")
	flags.DurationVar(&f.deadline, "deadline", luavm.DefaultDeadline, "the most a run may take, as lua.deadline of the configuration")
	f.adminFlags.add(flags)
	flags.BoolVar(&f.asJSON, "json", false, "print the result as JSON")
	return cmd
}

// replayed is what --json prints.
type replayed struct {
	Script  string   `json:"script"`
	Hash    string   `json:"hash"`
	Against string   `json:"against,omitempty"`
	Models  []string `json:"models"`
	cases.Replayed
}

func (f *replayFlags) run(ctx context.Context, in io.Reader, out io.Writer, path string) error {
	allowed, err := f.check()
	if err != nil {
		return err
	}
	stats, err := parseStats(f.told)
	if err != nil {
		return exitError{exitUsage, err}
	}
	script, err := compileLua(out, path, f.deadline)
	if err != nil {
		return err
	}
	name := f.name
	if name == "" {
		name = scriptName(path)
	}
	old, err := compared(ctx, out, f.against, f.running, &f.adminFlags, name, f.deadline)
	if err != nil {
		return err
	}
	head, calls, err := f.recorded(ctx, in)
	if err != nil {
		return err
	}
	r := &replayed{Script: path, Hash: script.Hash, Against: old.where, Models: []string{}}
	if calls, err = r.chosen(calls, cmp.Or(f.model, old.model)); err != nil {
		return err
	}
	r.Replayed = cases.Replay(ctx, calls, old.script, script, nil, func(_ *cases.Call, target string) (luavm.Stats, bool) { s, ok := stats[target]; return s, ok })
	if old.script == nil {
		r.Before, r.Changed = nil, 0 // from what?
	}
	if head.Users == cases.HashedUsers {
		r.Note = "users were recorded as hashes, so what the script makes of single users, such as lists of them and shares, is approximate"
	}
	if f.asJSON {
		err = printJSON(out, r)
	} else {
		_, err = io.WriteString(out, r.text())
	}
	switch {
	case err != nil:
		return err
	case r.Cut:
		return exitError{exitFailed, fmt.Errorf("stopped after %s", count(r.Calls, "call"))}
	case r.Failed > 0:
		return exitError{code: exitFailed}
	case allowed >= 0 && percent(r.Changed, r.Calls) > allowed:
		return exitError{exitFailed, fmt.Errorf("%.2f %% of decisions change, more than --max-changed %s", percent(r.Changed, r.Calls), f.maxChanged)}
	}
	return nil
}

// check holds the flags against each other; it gives the percents that may change, or -1.
func (f *replayFlags) check() (float64, error) {
	if err := checkDeadline(f.deadline); err != nil {
		return 0, err
	}
	if f.calls == "" && !f.running {
		return 0, exitError{exitUsage, errors.New("--calls is missing; name a file of recorded calls (GET /scripts/calls of the admin port gives one), or say --running to take them from the gateway")}
	}
	return checkCompared(f.against, f.running, f.maxChanged)
}

// recorded reads the calls.
func (f *replayFlags) recorded(ctx context.Context, in io.Reader) (cases.Head, []cases.Call, error) {
	where := f.calls
	switch f.calls {
	case "":
		port, err := f.open()
		if err != nil {
			return cases.Head{}, nil, err
		}
		body, err := port.want(ctx, http.MethodGet, nil, nil, "scripts", "calls")
		if err != nil {
			return cases.Head{}, nil, err
		}
		in, where = bytes.NewReader(body), "what the gateway has recorded"
	case "-":
		where = "the standard input"
	default:
		file, err := os.Open(f.calls)
		if err != nil {
			return cases.Head{}, nil, exitError{exitFailed, fmt.Errorf("--calls %s cannot be read: %w", f.calls, cause(err))}
		}
		defer file.Close()
		in = file
	}
	head, calls, err := cases.Read(io.LimitReader(in, maxCallsFile))
	if err != nil {
		return head, nil, exitError{exitFailed, fmt.Errorf("%s is no file of recorded calls: %w", where, err)}
	}
	if len(calls) == 0 {
		return head, nil, exitError{exitFailed, fmt.Errorf("%s has no calls in it; a gateway records some of those that a script decides", where)}
	}
	return head, calls, nil
}

// chosen gives the calls of model, or all, and notes whose they are.
func (r *replayed) chosen(calls []cases.Call, model string) ([]cases.Call, error) {
	models := make(map[string]bool)
	for _, c := range calls {
		models[c.Model] = true
	}
	r.Models = slices.Sorted(maps.Keys(models))
	if model == "" {
		return calls, nil
	}
	if !models[model] {
		return nil, exitError{exitFailed, fmt.Errorf("no recorded call is of model %q; there are calls of %s", model, strings.Join(r.Models, ", "))}
	}
	r.Models = []string{model}
	return slices.DeleteFunc(calls, func(c cases.Call) bool { return c.Model != model }), nil
}

func (r *replayed) text() string {
	var b strings.Builder
	after, before := r.shares(r.After), r.shares(r.Before)
	wide := widest(after, before)
	fmt.Fprintf(&b, "%s: where %s recorded calls of %s go\n\n", r.Script, thousands(r.Calls), list(r.Models, func(m string) string { return m }))
	chart(&b, after, wide)
	if r.Against != "" {
		fmt.Fprintf(&b, "\nAgainst %s:\n\n", r.Against)
		chart(&b, before, wide)
		fmt.Fprintf(&b, "\n%s of %s decisions change (%.2f %%).\n", thousands(r.Changed), thousands(r.Calls), percent(r.Changed, r.Calls))
	} else {
		b.WriteString("\nCompared with nothing; --against FILE or --running shows which decisions change.\n")
	}
	for _, n := range []struct {
		n    int
		text string
	}{
		{r.Failed, "%s FAILED: such calls go to the model's stable target.\n"},
		{r.FailedBefore, "%s failed before.\n"},
		{r.NoKey, "%s ended for want of a key, such as a user: the stable target, and nobody's mistake.\n"},
	} {
		if n.n > 0 {
			fmt.Fprintf(&b, n.text, count(n.n, "run"))
		}
	}
	if len(r.Models) > 1 {
		b.WriteString("Calls of several models; --model chooses one.\n")
	}
	b.WriteString(r.examples())
	if r.Note != "" {
		fmt.Fprintf(&b, "\nNote: %s.\n", r.Note)
	}
	return b.String()
}

// examples is a table of calls that are decided otherwise, or failed.
func (r *replayed) examples() string {
	rows := [][]string{{"call", "user", "from", "to", "why"}}
	for _, e := range r.Examples {
		if r.Against != "" || e.Why != "" {
			rows = append(rows, []string{fmt.Sprint(e.Call), e.User, target(e.Before), target(e.After), e.Why})
		}
	}
	if len(rows) == 1 {
		return ""
	}
	return "\n" + table(rows)
}

func target(name string) string {
	if name == "" {
		return "(stable)"
	}
	return name
}

func (r *replayed) shares(all map[string]int) []share {
	var shares []share
	for name, n := range all {
		shares = append(shares, share{Target: target(name), Users: n, Part: percent(n, r.Calls)})
	}
	sortShares(shares)
	return shares
}
