package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/model-gateway/model-gateway/pkg/luavm"
	"github.com/model-gateway/model-gateway/pkg/scripts/cases"
)

const (
	maxUsers     = 10_000_000
	maxStops     = 50 // runs that were stopped before a split gives up: each has cost a whole deadline
	maxUsersFile = 256 << 20
	barCells     = 40
)

// splitFlags are what `gateway lua split` was asked.
type splitFlags struct {
	adminFlags
	call       callFlags
	users      int
	usersFrom  string
	against    string
	running    bool
	name       string
	maxChanged string
	deadline   time.Duration
	asJSON     bool
}

// luaSplitCommand is `gateway lua split`: where many users would go, and who would move.
func luaSplitCommand() *cobra.Command {
	var f splitFlags
	cmd := &cobra.Command{
		Use: "split SCRIPT", Short: "Show where many users would go, and who would change target",
		Long: `Run a script once for each of many users, and show each target's share. The users are u1, u2, u3, ... or those of a file;
the other flags describe what else the calls have.

With --against, or --running for the version that a gateway runs under the script's name, the same users are also given to that
version: who changes target, from where to where. Beyond loopback --running takes a key of a caller with the kind admin.

Exit status: 0 every run ended well, and no more users change target than --max-changed allows; 1 otherwise; 2 split was not
called rightly.`,
		Example: `  gateway lua split scripts/lua/canary.lua --users 100000
  gateway lua split new.lua --against scripts/lua/canary.lua --max-changed 5%
  gateway lua split fraud.lua --running --admin http://gateway-0:8081 --key-file ~/.gateway-key`,
		Args: arguments("one script"),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), cmd.OutOrStdout(), args[0]) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.users, "users", 10_000, "how many users")
	flags.StringVar(&f.usersFrom, "users-from", "", "file with users, one a line, instead of made-up ones")
	flags.StringVar(&f.against, "against", "", "script to compare with")
	flags.BoolVar(&f.running, "running", false, "compare with what the gateway at --admin runs")
	flags.StringVar(&f.name, "name", "", "name of the running script (default: the file's, without .lua)")
	flags.StringVar(&f.maxChanged, "max-changed", "", "exit with 1 when more users than this change target, such as 5%")
	f.call.add(flags)
	flags.DurationVar(&f.deadline, "deadline", luavm.DefaultDeadline, "the most a run may take, as lua.deadline of the configuration")
	f.adminFlags.add(flags)
	flags.BoolVar(&f.asJSON, "json", false, "print the result as JSON")
	return cmd
}

// splitting is what many users got.
type splitting struct {
	Script  string      `json:"script"`
	Hash    string      `json:"hash"`
	Against string      `json:"against,omitempty"`
	Users   int         `json:"users"`
	GivenUp int         `json:"given_up_after,omitempty"` // runs that took all of their deadline
	Shares  []share     `json:"shares"`
	Before  []share     `json:"before,omitempty"`
	Changed *int        `json:"changed,omitempty"`
	Moves   []moved     `json:"moves,omitempty"`
	Error   *firstError `json:"error,omitempty"`
}

type share struct {
	Target string  `json:"target"`
	Users  int     `json:"users"`
	Part   float64 `json:"percent"`
	Failed bool    `json:"failed,omitempty"`
}

type moved struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Users int    `json:"users"`
	Like  string `json:"example"`
}

// firstError is the first run that ended badly.
type firstError struct {
	User    string `json:"user"`
	Script  string `json:"script"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

func (f *splitFlags) run(ctx context.Context, out io.Writer, path string) error {
	allowed, err := f.check()
	if err != nil {
		return err
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
	users, err := f.list()
	if err != nil {
		return err
	}
	s := &splitting{Script: path, Hash: script.Hash, Against: old.where}
	call, err := f.call.call(cmp.Or(old.model, name), "")
	if err != nil {
		return exitError{exitUsage, err}
	}
	if err := s.fill(ctx, call, script, old.script, users); err != nil {
		return err
	}
	if f.asJSON {
		err = printJSON(out, s)
	} else {
		_, err = io.WriteString(out, s.text())
	}
	switch {
	case err != nil:
		return err
	case s.Error != nil || s.GivenUp > 0:
		return exitError{code: exitFailed}
	case allowed >= 0 && s.Changed != nil && percent(*s.Changed, s.Users) > allowed:
		return exitError{exitFailed, fmt.Errorf("%.2f %% of users change target, more than --max-changed %s", percent(*s.Changed, s.Users), f.maxChanged)}
	}
	return nil
}

// check holds the flags against each other; it gives the percents that may change, or -1.
func (f *splitFlags) check() (float64, error) {
	if err := checkDeadline(f.deadline); err != nil {
		return 0, err
	}
	if f.users < 1 || f.users > maxUsers {
		return 0, exitError{exitUsage, fmt.Errorf("--users %d: use 1 to %d", f.users, maxUsers)}
	}
	return checkCompared(f.against, f.running, f.maxChanged)
}

// list gives the users.
func (f *splitFlags) list() ([]string, error) {
	if f.usersFrom == "" {
		users := make([]string, f.users)
		for i := range users {
			users[i] = cases.User(i)
		}
		return users, nil
	}
	file, err := os.Open(f.usersFrom)
	if err != nil {
		return nil, exitError{exitFailed, fmt.Errorf("--users-from: %w", err)}
	}
	defer file.Close()
	var users []string
	lines := bufio.NewScanner(io.LimitReader(file, maxUsersFile))
	for lines.Scan() {
		if user := bytes.TrimSpace(lines.Bytes()); len(user) > 0 {
			users = append(users, string(user))
		}
		if len(users) == maxUsers {
			break
		}
	}
	if err := lines.Err(); err != nil {
		return nil, exitError{exitFailed, fmt.Errorf("--users-from %s cannot be read: %w", f.usersFrom, err)}
	}
	if len(users) == 0 {
		return nil, exitError{exitFailed, fmt.Errorf("--users-from %s has no users; it has one a line", f.usersFrom)}
	}
	return users, nil
}

// fill runs script, and other where there is one, for each user.
func (s *splitting) fill(ctx context.Context, call *cases.Call, script, other *luavm.Script, users []string) error {
	in := call.Input()
	type move struct{ from, to string }
	after, before := make(map[string]*share), make(map[string]*share)
	moves := make(map[move]*moved)
	stops, changed := 0, 0
	for _, in.User = range users {
		if err := ctx.Err(); err != nil {
			return exitError{exitFailed, err}
		}
		now, failure := decide(ctx, script, in)
		s.Users++
		to := tally(after, now)
		if now.failed() {
			s.note(in.User, script.Name, failure)
			stops += stopped(now)
		}
		if other != nil {
			was, _ := decide(ctx, other, in)
			from := tally(before, was)
			stops += stopped(was)
			if from != to {
				changed++
				m := moves[move{from, to}]
				if m == nil {
					m = &moved{From: from, To: to, Like: in.User}
					moves[move{from, to}] = m
				}
				m.Users++
			}
		}
		if stops >= maxStops {
			s.GivenUp = stops
			break
		}
	}
	s.Shares, s.Before = s.shares(after), s.shares(before)
	if other != nil {
		s.Changed = &changed
		for _, m := range moves {
			s.Moves = append(s.Moves, *m)
		}
		slices.SortFunc(s.Moves, func(a, b moved) int {
			return cmp.Or(b.Users-a.Users, strings.Compare(a.From, b.From), strings.Compare(a.To, b.To))
		})
	}
	return nil
}

// stopped is 1 for a run that took its whole deadline.
func stopped(o outcome) int {
	if o.outcome == luavm.Timeout {
		return 1
	}
	return 0
}

func tally(all map[string]*share, o outcome) string {
	name := o.name()
	if all[name] == nil {
		all[name] = &share{Target: name, Failed: o.failed()}
	}
	all[name].Users++
	return name
}

// shares lists targets by name, and behind them what is no target.
func (s *splitting) shares(all map[string]*share) []share {
	var list []share
	for _, one := range all {
		one.Part = percent(one.Users, s.Users)
		list = append(list, *one)
	}
	sortShares(list)
	return list
}

// sortShares puts targets first, by name, and behind them what is no target.
func sortShares(list []share) {
	none := func(s share) int { return strings.Count(s.Target[:1], "(") }
	slices.SortFunc(list, func(a, b share) int { return cmp.Or(none(a)-none(b), strings.Compare(a.Target, b.Target)) })
}

func (s *splitting) note(user, script string, failure *luavm.RunError) {
	if s.Error == nil {
		s.Error = &firstError{User: user, Script: script, Line: failure.Line, Message: failure.Message}
	}
}

func percent(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return 100 * float64(n) / float64(of)
}
