package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/model-gateway/model-gateway/pkg/luavm"
)

// lintFlags are what `gateway lua lint` was asked.
type lintFlags struct {
	targets []string
	strict  bool
	asJSON  bool
}

// luaLintCommand is `gateway lua lint`: what is wrong with scripts, without running them.
func luaLintCommand() *cobra.Command {
	var f lintFlags
	cmd := &cobra.Command{
		Use: "lint SCRIPT|DIR ...", Short: "Say what is wrong with scripts, without running them",
		Long: `Read scripts, or all scripts of folders, and print what keeps one from running (errors) and what is likely a mistake
(warnings), as file:line:column: message. With --targets, a target that a script returns and that is not among them is an error.

Exit status: 0 no errors, and with --strict no warnings; 1 there are some, or a file cannot be read; 2 lint was not called rightly.`,
		Example: `  gateway lua lint scripts/lua
  gateway lua lint fraud.lua --targets model_v1,model_v2 --strict
  gateway lua lint scripts/lua --json | jq -r '.problems[].message'`,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) == 0 {
				return errors.New("lint wants scripts or folders of them: gateway lua lint scripts/lua")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.OutOrStdout(), args) },
	}
	cmd.Flags().StringSliceVar(&f.targets, "targets", nil, "declared targets, separated by commas")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "exit with 1 for warnings too")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the result as JSON")
	return cmd
}

// linted is what --json prints.
type linted struct {
	OK       bool      `json:"ok"`
	Scripts  int       `json:"scripts"`
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
	Problems []problem `json:"problems"`
}

type problem struct {
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Severity string `json:"severity"`
	Message  string `json:"message"`
}

func (f *lintFlags) run(out io.Writer, args []string) error {
	files, err := luaFiles(args)
	if err != nil {
		return err
	}
	r := linted{Scripts: len(files), Problems: []problem{}}
	for _, file := range files {
		src, err := readLua(file)
		if err != nil {
			return err
		}
		found, warnings := luavm.Lint(file, src)
		if len(found) == 0 {
			found, err = f.undeclared(file, src)
			if err != nil {
				return err
			}
		}
		r.add("error", found)
		r.add("warning", warnings)
	}
	r.OK = r.Errors == 0 && (r.Warnings == 0 || !f.strict)
	if f.asJSON {
		err = printJSON(out, r)
	} else {
		_, err = io.WriteString(out, r.text())
	}
	if err == nil && !r.OK {
		return exitError{code: exitFailed}
	}
	return err
}

// undeclared tells of targets that a script names and that --targets does not.
func (f *lintFlags) undeclared(file string, src []byte) (luavm.Problems, error) {
	if len(f.targets) == 0 {
		return nil, nil
	}
	script, err := luavm.Compile(file, src, luavm.Limits{})
	if err != nil {
		return nil, err
	}
	var found luavm.Problems
	for _, target := range script.Targets() {
		if !slices.Contains(f.targets, target) {
			found = append(found, luavm.Problem{Name: file, Line: lineOf(src, target), Message: fmt.Sprintf("returns %q, which is no declared target; use %s", target, strings.Join(f.targets, " or "))})
		}
	}
	return found, nil
}

// lineOf gives the first line of src on which a target's name stands in quotes, 0 when none does.
func lineOf(src []byte, target string) int {
	n := 0
	for line := range strings.Lines(string(src)) {
		n++
		if strings.Contains(line, `"`+target+`"`) || strings.Contains(line, "'"+target+"'") {
			return n
		}
	}
	return 0
}

func (r *linted) add(severity string, found luavm.Problems) {
	for _, p := range found {
		r.Problems = append(r.Problems, problem{File: p.Name, Line: p.Line, Column: p.Column, Severity: severity, Message: p.Message})
	}
	if severity == "error" {
		r.Errors += len(found)
	} else {
		r.Warnings += len(found)
	}
}

func (r *linted) text() string {
	var b strings.Builder
	b.WriteString(problemsText(r.Problems))
	if len(r.Problems) > 0 {
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%s, %s, %s.\n", count(r.Scripts, "script"), count(r.Errors, "error"), count(r.Warnings, "warning"))
	return b.String()
}

// problemsText is a line for each problem, as editors understand it.
func problemsText(problems []problem) string {
	var b strings.Builder
	for _, p := range problems {
		fmt.Fprintln(&b, luavm.Problem{Name: p.File, Line: p.Line, Column: p.Column, Message: p.Severity + ": " + p.Message})
	}
	return b.String()
}

// luaFiles lists the scripts that are named, and those in folders that are.
func luaFiles(args []string) ([]string, error) {
	var files []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, exitError{exitFailed, fmt.Errorf("%s cannot be read: %w", arg, cause(err))}
		}
		if !info.IsDir() {
			files = append(files, arg)
			continue
		}
		inside, err := filesIn(arg, ".lua")
		if err != nil {
			return nil, err
		}
		if len(inside) == 0 {
			return nil, exitError{exitFailed, fmt.Errorf("%s has no script in it (*.lua)", arg)}
		}
		files = append(files, inside...)
	}
	return files, nil
}

// filesIn lists the files of a folder, not of those in it, whose names end in suffix, as a gateway does.
func filesIn(dir, suffix string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, exitError{exitFailed, fmt.Errorf("%s cannot be read: %w", dir, cause(err))}
	}
	var files []string
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, suffix) && !strings.HasPrefix(name, ".") && !e.IsDir() {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files, nil
}
