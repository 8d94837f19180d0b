package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/luavm"
)

// checkCommand is `gateway check`: whether a file can be served, and everything that is wrong with it.
func checkCommand() *cobra.Command {
	var asJSON, schema bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Say whether a configuration can be served, and everything that is wrong with it",
		Long: `Check reads a configuration as "serve" would, the environment's settings included, and connects to nothing. Scripts are
compiled and held against the targets that models declare; "serve" starts without those that do not hold.
FILE may be - for the standard input. Exit status: 0 it can be served, 1 it has mistakes, 2 check was not called rightly.`,
		Example: `  gateway check gateway.yaml
  gateway check gateway.yaml --json | jq -r '.mistakes[].message'
  gateway check --schema > gateway.schema.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 && (!schema || len(args) > 0) {
				return exitError{exitUsage, errors.New("check wants one file: gateway check FILE (gateway check --help has examples)")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if schema {
				if len(args) > 0 {
					return exitError{exitUsage, errors.New("--schema prints the schema and checks no file; give one or the other")}
				}
				_, err := cmd.OutOrStdout().Write(config.Schema())
				return err
			}
			return check(cmd.InOrStdin(), cmd.OutOrStdout(), args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema that editors use, and check nothing")
	return cmd
}

// checkResult is what --json prints.
type checkResult struct {
	File      string           `json:"file"`
	OK        bool             `json:"ok"`
	Mistakes  []config.Mistake `json:"mistakes"`
	Upstreams int              `json:"upstreams"`
	Models    int              `json:"models"`
	Targets   int              `json:"targets"`
	Callers   int              `json:"callers"`
	Limits    int              `json:"limits"`
	Notes     []string         `json:"notes"`
}

func check(in io.Reader, out io.Writer, path string, asJSON bool) error {
	cfg, err := loadFor(in, path)
	var mistakes config.Errors
	if err != nil && !errors.As(err, &mistakes) {
		return exitError{exitFailed, err}
	}
	if cfg != nil {
		var notes []string
		if mistakes, notes = cfg.CheckScripts(compileScript); len(mistakes) > 0 {
			cfg = nil
		} else {
			cfg.Notes = append(cfg.Notes, notes...)
		}
	}
	switch {
	case asJSON:
		result := checkResult{File: path, OK: cfg != nil, Mistakes: mistakes, Notes: []string{}}
		if mistakes == nil {
			result.Mistakes = []config.Mistake{} // a list, for who reads it
		}
		if cfg != nil {
			result.Upstreams, result.Models, result.Targets, result.Notes = len(cfg.Upstreams), len(cfg.Models), countTargets(cfg), append(result.Notes, cfg.Notes...)
			result.Callers, result.Limits = len(cfg.Callers), len(allLimits(cfg))
		}
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		err = enc.Encode(result)
	case cfg == nil:
		err = printMistakes(out, path, mistakes)
	default:
		_, err = io.WriteString(out, summary(path, cfg))
	}
	if cfg == nil {
		return exitError{exitFailed, err}
	}
	return err
}

// compileScript makes sense of a script for a check.
func compileScript(name string, source []byte) (targets []string, mistakes []config.Mistake) {
	script, err := luavm.Compile(name, source, luavm.Limits{})
	var problems luavm.Problems
	switch {
	case err == nil:
		return script.Targets(), nil
	case !errors.As(err, &problems):
		return nil, []config.Mistake{{Msg: err.Error()}}
	}
	for _, p := range problems {
		mistakes = append(mistakes, config.Mistake{Line: p.Line, Col: p.Column, Msg: p.Message})
	}
	return nil, mistakes
}

// loadFor loads a file, or what stands on in when path is "-".
func loadFor(in io.Reader, path string) (*config.Config, error) {
	if path != "-" {
		return config.Load(path, os.Getenv)
	}
	source, err := io.ReadAll(io.LimitReader(in, config.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("the standard input cannot be read: %w", err)
	}
	return config.Parse(path, source, os.Getenv)
}

// printMistakes prints each mistake as file:line:column: path: message, with its line.
func printMistakes(out io.Writer, path string, mistakes config.Errors) error {
	var b strings.Builder
	for _, m := range mistakes {
		where := "environment"
		if m.File != "" {
			where = m.File
		}
		if m.Line > 0 {
			where += fmt.Sprintf(":%d:%d", m.Line, max(m.Col, 1))
		}
		if m.Path != "" {
			where += ": " + m.Path
		}
		fmt.Fprintf(&b, "%s: %s\n", where, m.Msg)
		if m.Excerpt != "" {
			b.WriteString(m.Excerpt + "\n")
		}
	}
	fmt.Fprintf(&b, "\n%s cannot be served: %s.\n", path, count(len(mistakes), "mistake"))
	_, err := io.WriteString(out, b.String())
	return err
}

// summary says in one paragraph what a good configuration serves.
func summary(path string, cfg *config.Config) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is good. It listens on %s", path, cfg.Listen.Data)
	if cfg.Listen.Admin != "" {
		fmt.Fprintf(&b, ", for administration on %s", cfg.Listen.Admin)
	}
	fmt.Fprintf(&b, ". %s: %s.", count(len(cfg.Upstreams), "upstream"), list(cfg.Upstreams, func(u config.Upstream) string {
		return fmt.Sprintf("%s (%s)", u.Name, list(u.Addresses(), func(a string) string { return a }))
	}))
	if len(cfg.Models) > 0 {
		fmt.Fprintf(&b, " %s with %s: %s.", count(len(cfg.Models), "model"), count(countTargets(cfg), "declared target"), list(cfg.Models, describeModel))
	}
	switch {
	case cfg.Passthrough && len(cfg.Models) > 0:
		b.WriteString(" Other names pass through.")
	case cfg.Passthrough:
		b.WriteString(" Every model of it passes through under its own name.")
	}
	b.WriteString(rules(cfg) + protection(cfg) + "\n")
	for _, n := range cfg.Notes {
		fmt.Fprintf(&b, "Note: %s.\n", n)
	}
	return b.String()
}

// rules says what splits and copies calls; nothing where nothing does.
func rules(cfg *config.Config) string {
	var words []string
	for _, m := range cfg.Models {
		if len(m.Split) > 0 {
			words = append(words, fmt.Sprintf("%s by %s", m.Name, list(m.Split, func(r config.SplitRule) string { return r.Name })))
		}
		if m.Mirror != nil {
			words = append(words, fmt.Sprintf("%s copied to %s", m.Name, m.Mirror.To))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf(" Calls are split: %s.", list(words, func(s string) string { return s }))
}

// protection says who may call, and what limits there are; nothing where everybody may, without end.
func protection(cfg *config.Config) string {
	var b strings.Builder
	if cfg.Auth == config.AuthRequired {
		fmt.Fprintf(&b, " Callers must prove who they are: %s", list(cfg.Callers, func(c config.Caller) string { return c.Name }))
		if n := len(cfg.Access.Rules); n > 0 {
			fmt.Fprintf(&b, ", under %s", count(n, "access rule"))
		}
		b.WriteString(".")
	}
	if limits := allLimits(cfg); len(limits) > 0 {
		where := "in memory"
		if cfg.Redis != nil {
			where = fmt.Sprintf("in Redis (%s %s)", cfg.Redis.Mode, list(cfg.Redis.Addresses, func(a string) string { return a }))
		}
		fmt.Fprintf(&b, " %s, %s: %s.", count(len(limits), "limit"), where, list(limits, describeLimit))
	}
	return b.String()
}

// allLimits lists those over all models, and those of each.
func allLimits(cfg *config.Config) []*inference.Limit {
	limits := slices.Clone(cfg.Limits)
	for _, m := range cfg.Models {
		limits = append(limits, m.Limits...)
	}
	return limits
}

func describeLimit(l *inference.Limit) string {
	if l.Mode == inference.Enforce {
		return l.Name
	}
	return fmt.Sprintf("%s (%s)", l.Name, l.Mode)
}

func describeModel(m config.Model) string {
	if len(m.Targets) == 0 {
		return m.Name + " (every version)"
	}
	return fmt.Sprintf("%s (%s)", m.Name, list(m.Targets, func(t config.Target) string {
		if t.Name == m.Stable && len(m.Targets) > 1 {
			return t.Name + " stable"
		}
		return t.Name
	}))
}

func countTargets(cfg *config.Config) int {
	n := 0
	for _, m := range cfg.Models {
		n += len(m.Targets)
	}
	return n
}

// list joins the first few of all; the rest is counted.
func list[T any](all []T, word func(T) string) string {
	const most = 8
	var words []string
	for _, v := range all[:min(len(all), most)] {
		words = append(words, word(v))
	}
	if more := len(all) - most; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, ", ")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
