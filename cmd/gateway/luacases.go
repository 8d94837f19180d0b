package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/model-gateway/model-gateway/pkg/luavm"
	"github.com/model-gateway/model-gateway/pkg/scripts/cases"
)

// luaTestCommand is `gateway lua test`: whether scripts answer as their cases say.
func luaTestCommand() *cobra.Command {
	var deadline time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use: "test DIR|SCRIPT ...", Short: "Run scripts on their cases, and show what they answer otherwise",
		Long: `Run every script that has cases, canary.lua on those of canary_cases.yaml beside it, and print what each case wanted and
got where they differ. A gateway runs the same cases before it takes a new version.

Exit status: 0 every case passed; 1 one did not, a script or its cases have a mistake, or there are no cases; 2 test was not
called rightly.`,
		Example: `  gateway lua test scripts/lua
  gateway lua test scripts/lua/canary.lua --json | jq '.files[].results[] | select(.passed | not)'`,
		Args: func(_ *cobra.Command, given []string) error {
			if len(given) == 0 {
				return errors.New("test wants a folder of scripts, or scripts: gateway lua test scripts/lua")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDeadline(deadline); err != nil {
				return err
			}
			return testScripts(cmd.Context(), cmd.OutOrStdout(), args, deadline, asJSON)
		},
	}
	cmd.Flags().DurationVar(&deadline, "deadline", luavm.DefaultDeadline, "the most a run may take, as lua.deadline of the configuration")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

// tested is what --json prints.
type tested struct {
	OK       bool         `json:"ok"`
	Passed   int          `json:"passed"`
	Failed   int          `json:"failed"`
	Mistakes int          `json:"mistakes"` // in scripts and files of cases
	Files    []testedFile `json:"files"`
	Untested []string     `json:"untested"` // scripts without cases
}

type testedFile struct {
	Script   string         `json:"script"`
	Cases    string         `json:"cases"`
	Mistakes []string       `json:"mistakes,omitempty"` // for which nothing could be run
	Results  []cases.Result `json:"results"`
}

func testScripts(ctx context.Context, out io.Writer, args []string, deadline time.Duration, asJSON bool) error {
	t := tested{Files: []testedFile{}, Untested: []string{}}
	stems, err := namedStems(args)
	if err != nil {
		return err
	}
	for _, stem := range stems {
		if err := ctx.Err(); err != nil {
			return exitError{exitFailed, err}
		}
		if _, err := os.Stat(stem + cases.Suffix); errors.Is(err, os.ErrNotExist) {
			t.Untested = append(t.Untested, stem+".lua")
			continue
		}
		if err := t.test(ctx, stem, deadline); err != nil {
			return exitError{exitFailed, err}
		}
	}
	t.OK = t.Failed == 0 && t.Mistakes == 0 && t.Passed > 0
	if asJSON {
		err = printJSON(out, t)
	} else {
		_, err = io.WriteString(out, t.text())
	}
	if err == nil && !t.OK {
		return exitError{code: exitFailed}
	}
	return err
}

// namedStems lists what the names of scripts and of their cases begin with, each once.
func namedStems(args []string) ([]string, error) {
	var all []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, exitError{exitFailed, fmt.Errorf("%s cannot be read: %w", arg, cause(err))}
		}
		stems := []string{strings.TrimSuffix(strings.TrimSuffix(arg, cases.Suffix), ".lua")}
		if info.IsDir() {
			if stems, err = stemsIn(arg); err != nil {
				return nil, err
			}
		} else if stems[0] == arg {
			return nil, exitError{exitUsage, fmt.Errorf("%s is no folder, no script (.lua) and no file of cases (%s)", arg, cases.Suffix)}
		}
		for _, stem := range stems {
			if stem = filepath.Clean(stem); !slices.Contains(all, stem) {
				all = append(all, stem)
			}
		}
	}
	return all, nil
}

// stemsIn lists what the names of a folder's scripts and cases begin with.
func stemsIn(dir string) ([]string, error) {
	var stems []string
	for _, suffix := range []string{".lua", cases.Suffix} {
		files, err := filesIn(dir, suffix)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			stems = append(stems, strings.TrimSuffix(file, suffix))
		}
	}
	if len(stems) == 0 {
		return nil, exitError{exitFailed, fmt.Errorf("%s has no script in it (*.lua)", dir)}
	}
	slices.Sort(stems)
	return slices.Compact(stems), nil
}

// test runs the cases of one script.
func (t *tested) test(ctx context.Context, stem string, deadline time.Duration) error {
	one := testedFile{Script: stem + ".lua", Cases: stem + cases.Suffix, Results: []cases.Result{}}
	defer func() {
		t.Mistakes += len(one.Mistakes)
		t.Files = append(t.Files, one)
	}()
	file, err := cases.Load(one.Cases)
	one.mistakes(one.Cases, err)
	src, err := readLua(one.Script)
	if err != nil {
		one.Mistakes = append(one.Mistakes, err.Error())
		return nil
	}
	script, err := luavm.Compile(one.Script, src, luavm.Limits{Deadline: deadline})
	one.mistakes(one.Script, err)
	if err == nil && file != nil {
		one.undeclared(file, script, src)
	}
	if len(one.Mistakes) > 0 {
		return nil
	}
	one.Results, err = file.Run(ctx, script)
	for _, r := range one.Results {
		if r.Passed {
			t.Passed++
		} else {
			t.Failed++
		}
	}
	return err
}

// mistakes notes those that err tells of, under the file's whole path.
func (f *testedFile) mistakes(path string, err error) {
	var problems luavm.Problems
	switch {
	case errors.As(err, &problems):
		for _, p := range problems {
			p.Name = path
			f.Mistakes = append(f.Mistakes, p.String())
		}
	case err != nil:
		f.Mistakes = append(f.Mistakes, fmt.Sprintf("%s cannot be read: %v", path, cause(err)))
	}
}

// undeclared notes targets that the script names and that neither targets nor a case of the file does.
func (f *testedFile) undeclared(file *cases.File, script *luavm.Script, src []byte) {
	if file.Targets == nil {
		return
	}
	known := slices.Clone(file.Targets)
	for _, c := range file.Cases {
		known = append(known, c.Want.Target)
	}
	for _, name := range script.Targets() {
		if !slices.Contains(known, name) {
			f.Mistakes = append(f.Mistakes, luavm.Problem{
				Name: f.Script, Line: lineOf(src, name), Message: fmt.Sprintf("answers %q, which is none of the targets that its cases name", name),
			}.String())
		}
	}
}

func (t *tested) text() string {
	var b strings.Builder
	wide := 0
	for _, f := range t.Files {
		wide = max(wide, utf8.RuneCountInString(f.Script))
	}
	for _, f := range t.Files {
		fmt.Fprintf(&b, "%s  %s\n", pad(f.Script, wide), f.summary())
	}
	for _, f := range t.Files {
		for _, m := range f.Mistakes {
			fmt.Fprintf(&b, "\n%s\n", m)
		}
		for _, r := range f.Results {
			if !r.Passed {
				b.WriteString("\n" + f.difference(r))
			}
		}
	}
	b.WriteString("\n")
	for _, script := range t.Untested {
		fmt.Fprintf(&b, "%s has no cases; %s would hold them.\n", script, strings.TrimSuffix(script, ".lua")+cases.Suffix)
	}
	fmt.Fprintf(&b, "%d passed, %d failed", t.Passed, t.Failed)
	if t.Mistakes > 0 {
		fmt.Fprintf(&b, ", %s", count(t.Mistakes, "mistake"))
	}
	b.WriteString(".\n")
	return b.String()
}

func (f *testedFile) summary() string {
	if len(f.Mistakes) > 0 {
		return "not run"
	}
	failed := 0
	for _, r := range f.Results {
		if !r.Passed {
			failed++
		}
	}
	if failed == 0 {
		return fmt.Sprintf("%d passed", len(f.Results))
	}
	return fmt.Sprintf("%d passed, %d FAILED", len(f.Results)-failed, failed)
}

// difference shows what a case wanted and what it got.
func (f *testedFile) difference(r cases.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d: %s\n    want  %s\n    got   %s\n", f.Cases, r.Line, r.Name, r.Want, r.Got)
	if r.Why != "" {
		fmt.Fprintf(&b, "    why   %s\n", luavm.Problem{Name: f.Script, Line: r.At, Message: r.Why})
	}
	return b.String()
}
