package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/model-gateway/model-gateway/pkg/luavm"
)

// warmRuns is how many runs the time of a run is the median of.
const warmRuns = 21

// luaRunCommand is `gateway lua run`: what a script decides on one call.
func luaRunCommand() *cobra.Command {
	var call callFlags
	var user string
	var deadline time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use: "run SCRIPT", Short: "Run a script on one call, and say what it decides",
		Long: `Run a script on a call that the flags describe: the decision, its reason, how the run ended, how long it took, what it
logged, and the line of an error. What the flags do not say, the call does not have.

Exit status: 0 the run ended with a target, without an opinion, or for want of a key; 1 it failed or the script does not compile;
2 run was not called rightly.`,
		Example: `  gateway lua run scripts/lua/canary.lua --user u1
  gateway lua run scripts/lua/premium_users.lua --header x-user-type=premium
  gateway lua run scripts/lua/p99_guard.lua --user u3 --stats model_v2=error_rate:0.2,p99:80ms`,
		Args: arguments("one script"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDeadline(deadline); err != nil {
				return err
			}
			c, err := call.call(scriptName(args[0]), user)
			if err != nil {
				return exitError{exitUsage, err}
			}
			script, err := compileLua(cmd.OutOrStdout(), args[0], deadline)
			if err != nil {
				return err
			}
			return runOnce(cmd.Context(), cmd.OutOrStdout(), script, c.Input(), asJSON)
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "user that the call is made for; without one the call has none")
	call.add(cmd.Flags())
	cmd.Flags().DurationVar(&deadline, "deadline", luavm.DefaultDeadline, "the most a run may take, as lua.deadline of the configuration")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

// ran is what a script did on a call.
type ran struct {
	Script  string   `json:"script"`
	Hash    string   `json:"hash"`
	Target  string   `json:"target"`
	Reason  string   `json:"reason,omitempty"`
	Outcome string   `json:"outcome"`
	Line    int      `json:"line,omitempty"`
	Error   string   `json:"error,omitempty"`
	Nanos   int64    `json:"nanoseconds"`
	Log     []string `json:"log"`
}

var levels = [...]string{
	luavm.LogStderr: "stderr", luavm.LogEmerg: "emerg", luavm.LogAlert: "alert", luavm.LogCrit: "crit", luavm.LogErr: "error",
	luavm.LogWarn: "warn", luavm.LogNotice: "notice", luavm.LogInfo: "info", luavm.LogDebug: "debug",
}

func runOnce(ctx context.Context, out io.Writer, script *luavm.Script, in *luavm.Input, asJSON bool) error {
	r := ran{Script: script.Name, Hash: script.Hash, Log: []string{}}
	in.Log = func(level int, msg string) {
		if level >= 0 && level < len(levels) {
			msg = levels[level] + ": " + msg
		}
		r.Log = append(r.Log, msg)
	}
	o, failure := decide(ctx, script, in)
	r.Target, r.Reason, r.Outcome = o.Target, o.Reason, o.outcome.String()
	if failure != nil {
		r.Line, r.Error = failure.Line, failure.Message
	}
	in.Log = nil
	took := make([]time.Duration, warmRuns)
	for i := range took {
		began := time.Now()
		_, _ = script.Run(ctx, in) // as above
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	r.Nanos = took[len(took)/2].Nanoseconds()
	var err error
	if asJSON {
		err = printJSON(out, r)
	} else {
		_, err = io.WriteString(out, r.text())
	}
	if err == nil && o.failed() {
		return exitError{code: exitFailed}
	}
	return err
}

func (r *ran) text() string {
	var b strings.Builder
	decision := r.Target
	switch {
	case decision != "":
	case r.Outcome == luavm.NoOpinion.String():
		decision = "none: the model's next rule decides, or its stable target"
	default:
		decision = "the model's stable target"
	}
	fmt.Fprintf(&b, "decision  %s\n", decision)
	if r.Reason != "" {
		fmt.Fprintf(&b, "reason    %s\n", r.Reason)
	}
	fmt.Fprintf(&b, "outcome   %s\n", r.Outcome)
	if r.Error != "" {
		fmt.Fprintf(&b, "because   %s\n", luavm.Problem{Name: r.Script, Line: r.Line, Message: r.Error})
	}
	fmt.Fprintf(&b, "time      %.1f µs\n", float64(r.Nanos)/1e3)
	for _, line := range r.Log {
		fmt.Fprintf(&b, "log       %s\n", line)
	}
	return b.String()
}

// outcome is a decision and how the run ended that gave it.
type outcome struct {
	luavm.Decision
	outcome luavm.Outcome
}

// failed reports whether the run ended in a way that is the script's fault.
func (o outcome) failed() bool {
	return o.outcome.Failed()
}

// name says where a call with this outcome goes.
func (o outcome) name() string {
	switch o.outcome {
	case luavm.OK:
		return o.Target
	case luavm.NoOpinion:
		return "(no opinion)"
	case luavm.NoKey:
		return "(no key)"
	default:
		return "(" + o.outcome.String() + ")"
	}
}

// decide runs a script. The error says why no target was named, where that is worth words.
func decide(ctx context.Context, script *luavm.Script, in *luavm.Input) (outcome, *luavm.RunError) {
	d, err := script.Run(ctx, in)
	var failure *luavm.RunError
	switch {
	case errors.As(err, &failure):
		return outcome{outcome: failure.Outcome}, failure
	case err != nil:
		return outcome{outcome: luavm.Error}, &luavm.RunError{Outcome: luavm.Error, Message: err.Error()}
	case d.Target == "":
		return outcome{Decision: d, outcome: luavm.NoOpinion}, nil
	}
	return outcome{Decision: d, outcome: luavm.OK}, nil
}
