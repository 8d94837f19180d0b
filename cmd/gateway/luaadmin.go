package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/model-gateway/model-gateway/pkg/luavm"
	"github.com/model-gateway/model-gateway/pkg/scripts"
)

// mostExamples is how many decisions that change a push shows; replay shows more.
const mostExamples = 5

// onGateway is a command that asks a gateway about its scripts, and prints what it says, or that as it came.
func onGateway(cmd *cobra.Command, do func(ctx context.Context, port *adminPort, out io.Writer, args []string, asJSON bool) error) *cobra.Command {
	var admin adminFlags
	var asJSON bool
	cmd.Long += `

The gateway is asked on its admin port: at --admin, else where the file of --config or GATEWAY_ADMIN says. Beyond loopback that
takes a key of a caller with the kind admin, from --key-file or GATEWAY_KEY.`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		port, err := admin.open()
		if err != nil {
			return err
		}
		return do(cmd.Context(), port, cmd.OutOrStdout(), args, asJSON)
	}
	admin.add(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what the gateway answers, as JSON")
	return cmd
}

func luaListCommand() *cobra.Command {
	return onGateway(&cobra.Command{
		Use: "list", Short: "List the scripts of a running gateway and how they are",
		Long: `List the scripts that a running gateway has: whether each is well, which version runs, where it came from, who uses it.

Exit status: 0 all of them are well, 1 one is refused or off, or the gateway could not be asked, 2 list was not called rightly.`,
		Example: `  gateway lua list
  gateway lua list --admin http://gateway-0:8081 --key-file ~/.gateway-key --json | jq -r '.[] | select(.state != "ok").name'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, port *adminPort, out io.Writer, _ []string, asJSON bool) error {
		var infos []scripts.Info
		if err := port.get(ctx, &infos, "scripts"); err != nil {
			return err
		}
		bad := 0
		for _, i := range infos {
			if i.State != scripts.StateOK {
				bad++
			}
		}
		var err error
		if asJSON {
			err = printJSON(out, infos)
		} else {
			_, err = io.WriteString(out, listText(infos))
		}
		if err == nil && bad > 0 {
			return exitError{code: exitFailed}
		}
		return err
	})
}

func luaStatusCommand() *cobra.Command {
	var source bool
	cmd := onGateway(&cobra.Command{
		Use: "status NAME", Short: "Say how one script of a running gateway is, why a newer version does not run, and its history",
		Long: `Say of one script of a running gateway which version runs and where it came from, who uses it, why a newer version does not run
(with file and line), whether it is off since it fails too often, and which versions there were. With --source, print the text of
the version that runs and nothing else.

Exit status: 0 it is well, 1 it is refused or off, or the gateway could not be asked, 2 status was not called rightly.`,
		Example: "  gateway lua status fraud\n  gateway lua status fraud --source > fraud.lua",
		Args:    arguments("the name of a script"),
	}, func(ctx context.Context, port *adminPort, out io.Writer, args []string, asJSON bool) error {
		info, err := port.script(ctx, args[0])
		if err != nil {
			return err
		}
		switch {
		case source && info.Text == "":
			return exitError{exitFailed, fmt.Errorf("no version of %s runs", args[0])}
		case source:
			_, err = io.WriteString(out, info.Text)
			return err
		case asJSON:
			err = printJSON(out, info)
		default:
			_, err = io.WriteString(out, statusText(info))
		}
		if err == nil && info.State != scripts.StateOK {
			return exitError{code: exitFailed}
		}
		return err
	})
	cmd.Flags().BoolVar(&source, "source", false, "print the text of the version that runs")
	return cmd
}

func luaPushCommand() *cobra.Command {
	var dry bool
	cmd := onGateway(&cobra.Command{
		Use: "push NAME FILE", Short: "Give a running gateway a new version of a script",
		Long: `Give a running gateway a new version of the script NAME. It is compiled, run on its cases and on recorded calls, and held
against the targets there are; only then it runs, on all replicas that share a Redis. It stands in for the script's file until
that changes. With --dry-run all of that is done, but for the change. What is likely a mistake in FILE is printed first, as
warnings; gateway lua lint finds the same.

Exit status: 0 it runs (or would), 1 it is refused, and why is printed, or the gateway could not be asked, 2 push was not called
rightly.`,
		Example: "  gateway lua push fraud fraud.lua --dry-run\n  gateway lua push fraud fraud.lua",
		Args:    arguments("the name of a script", "a file"),
	}, func(ctx context.Context, port *adminPort, out io.Writer, args []string, asJSON bool) error {
		src, err := readLua(args[1])
		if err != nil {
			return err
		}
		var query url.Values
		if dry {
			query = url.Values{"dry_run": {"true"}}
		}
		warnings := likelyMistakes(args[1], src)
		if asJSON {
			return port.change(ctx, out, func(a *scripts.Answer) error { return printJSON(out, pushed{*a, warnings}) }, http.MethodPut, query, src, "scripts", args[0])
		}
		if _, err := io.WriteString(out, problemsText(warnings)); err != nil {
			return err
		}
		return port.change(ctx, out, nil, http.MethodPut, query, src, "scripts", args[0])
	})
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would come of it, and change nothing")
	return cmd
}

func luaRollbackCommand() *cobra.Command {
	var to string
	cmd := onGateway(&cobra.Command{
		Use: "rollback NAME", Short: "Go back to an earlier version of a script",
		Long: `Have a running gateway go back to an earlier version of the script NAME: the one before, or with --to another of its history,
by the beginning of its hash or by how many versions back it is. "--to file" lets the script's file speak again.

The version that is gone back to stands in for the file until that changes: put the file right before you save it again.

Exit status: 0 it runs, 1 it is refused, and why is printed, or the gateway could not be asked, 2 rollback was not called rightly.`,
		Example: "  gateway lua rollback fraud\n  gateway lua rollback fraud --to 3f9c2a\n  gateway lua rollback fraud --to file",
		Args:    arguments("the name of a script"),
	}, func(ctx context.Context, port *adminPort, out io.Writer, args []string, asJSON bool) error {
		body, err := json.Marshal(map[string]string{"to": to})
		if err != nil {
			return err
		}
		var show func(*scripts.Answer) error
		if asJSON {
			show = func(a *scripts.Answer) error { return printJSON(out, a) }
		}
		return port.change(ctx, out, show, http.MethodPost, nil, body, "scripts", args[0], "rollback")
	})
	cmd.Flags().StringVar(&to, "to", "1", `version: the beginning of its hash, how many versions back, or "file"`)
	return cmd
}

// get asks for what stands at path.
func (p *adminPort) get(ctx context.Context, into any, path ...string) error {
	body, err := p.want(ctx, http.MethodGet, nil, nil, path...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return exitError{exitFailed, fmt.Errorf("what answers at %s is no gateway's admin port", p.base)}
	}
	return nil
}

// want sends one request and gives the answer to it, which must be 200.
func (p *adminPort) want(ctx context.Context, method string, query url.Values, body []byte, path ...string) ([]byte, error) {
	code, answer, err := p.ask(ctx, method, query, body, path...)
	if err == nil && code != http.StatusOK {
		err = p.refusal(code, answer, p.absent(answer))
	}
	return answer, err
}

// absent is what is said of a path that is not there: the gateway's own words, where the answer is its.
func (p *adminPort) absent(answer []byte) string {
	var said struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(answer, &said) == nil && said.Error != "" {
		return said.Error
	}
	return fmt.Sprintf("what answers at %s knows no scripts; name the admin port with --admin", p.base)
}

// script gives one script with its text.
func (p *adminPort) script(ctx context.Context, name string) (*scripts.Info, error) {
	info := new(scripts.Info)
	if err := p.get(ctx, info, "scripts", name); err != nil {
		return nil, err
	}
	return info, nil
}

// pushed is what push prints with --json: the gateway's answer, and what is likely a mistake in the file.
type pushed struct {
	scripts.Answer

	Warnings []problem `json:"warnings"`
}

// likelyMistakes gives what lint warns of. What keeps a script from running the gateway says itself.
func likelyMistakes(file string, src []byte) []problem {
	var r linted
	_, warnings := luavm.Lint(file, src)
	r.Problems = []problem{}
	r.add("warning", warnings)
	return r.Problems
}

// change asks for a change, and shows what came of it: as text, or by show where that is set.
func (p *adminPort) change(ctx context.Context, out io.Writer, show func(*scripts.Answer) error, method string, query url.Values, body []byte, path ...string) error {
	code, text, err := p.ask(ctx, method, query, body, path...)
	if err != nil {
		return err
	}
	var a scripts.Answer
	ours := json.Unmarshal(text, &a) == nil && a.Script != ""
	switch {
	case !ours && code == http.StatusOK:
		return exitError{exitFailed, fmt.Errorf("what answers at %s is no gateway's admin port", p.base)}
	case !ours:
		return p.refusal(code, text, p.absent(text))
	case show != nil:
		err = show(&a)
	default:
		_, err = io.WriteString(out, answerText(&a))
	}
	if err != nil || code == http.StatusOK {
		return err
	}
	if len(a.Problems) == 0 && a.Error != "" {
		return exitError{exitFailed, errors.New(a.Error)}
	}
	return exitError{exitFailed, errors.New(a.Script + " is refused; what ran before goes on")}
}

func listText(infos []scripts.Info) string {
	if len(infos) == 0 {
		return "The gateway has no scripts.\n"
	}
	rows := [][]string{{"script", "state", "version", "from", "by", "since", "models"}}
	for _, i := range infos {
		rows = append(rows, []string{i.Name, i.State, short(i.Hash), origin(i.Source), dash(i.Who), since(i.When), users(&i)})
	}
	var b strings.Builder
	b.WriteString(table(rows))
	for _, i := range infos {
		if i.State != scripts.StateOK {
			b.WriteString("\n" + why(&i))
		}
	}
	return b.String()
}

// users says which models use a script.
func users(i *scripts.Info) string {
	if i.ByName {
		return "(by its name)"
	}
	return dash(list(i.Models, func(m string) string { return m }))
}

// why says what is wrong with a script.
func why(i *scripts.Info) string {
	var b strings.Builder
	for _, p := range i.Problems {
		fmt.Fprintf(&b, "%s\n", p)
	}
	if i.Off && i.OffSince != nil && i.Retry != nil {
		fmt.Fprintf(&b, "%s is off since %s, because its runs failed: its calls go to the stable target. It is tried again from %s on.\n", i.Name, since(*i.OffSince), since(*i.Retry))
	}
	return b.String()
}

func statusText(i *scripts.Info) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("script", "%s", i.Name)
	line("state", "%s", i.State)
	switch {
	case i.Hash == "":
		line("version", "none runs: calls go to the stable target of their model")
	case i.Who == scripts.ByFile || i.Who == "":
		line("version", "%s, from %s, since %s", short(i.Hash), origin(i.Source), since(i.When))
	default:
		line("version", "%s, from %s by %s, since %s", short(i.Hash), origin(i.Source), i.Who, since(i.When))
	}
	line("models", "%s", users(i))
	if o := i.Override; o != nil {
		if o.InForce {
			line("override", "%s by %s, %s (%s); it ends when the file changes, or with gateway lua rollback %s --to file", short(o.Hash), o.Who, since(o.When), o.Scope, i.Name)
		} else {
			line("override", "%s by %s, %s: not in force, since the file here is another one than it replaces", short(o.Hash), o.Who, since(o.When))
		}
	}
	if !i.Cases {
		line("cases", "none; %s_cases.yaml beside the script would hold them", i.Name)
	}
	line("recorded", "%s", count(i.Recorded, "call"))
	line("memory", "%.1f KiB", float64(i.Memory)/1024)
	if text := why(i); text != "" {
		b.WriteString("\n" + text)
	}
	if len(i.History) > 0 {
		rows := [][]string{{"version", "since", "from", "by", ""}}
		now := slices.IndexFunc(i.History, func(e scripts.Entry) bool { return e.Hash == i.Hash })
		for n, e := range i.History {
			runs := ""
			if n == now {
				runs = "runs"
			}
			rows = append(rows, []string{short(e.Hash), since(e.When), origin(e.From), e.Who, runs})
		}
		b.WriteString("\n" + table(rows))
	}
	return b.String()
}

func answerText(a *scripts.Answer) string {
	var b strings.Builder
	for _, p := range a.Problems {
		fmt.Fprintf(&b, "%s\n", p)
	}
	switch {
	case len(a.Problems) > 0 || a.Error != "":
	case a.DryRun:
		fmt.Fprintf(&b, "%s: version %s would run in place of %s.\n", a.Script, short(a.Hash), short(a.Before))
	default:
		fmt.Fprintf(&b, "%s: version %s runs now, on %s; before it was %s.\n", a.Script, short(a.Hash), a.Scope, short(a.Before))
	}
	if a.Note != "" {
		fmt.Fprintf(&b, "Note: %s.\n", a.Note)
	}
	if a.Cases > 0 {
		fmt.Fprintf(&b, "%s run.\n", count(a.Cases, "case"))
	}
	if r := a.Replay; r != nil {
		fmt.Fprintf(&b, "Of %s, %d are decided otherwise and %d fail.\n", count(r.Calls, "recorded call"), r.Changed, r.Failed)
		if len(r.Examples) > 0 {
			rows := [][]string{{"call", "user", "from", "to", "why"}}
			for _, e := range r.Examples[:min(len(r.Examples), mostExamples)] {
				rows = append(rows, []string{fmt.Sprint(e.Call), e.User, target(e.Before), target(e.After), e.Why})
			}
			b.WriteString("\n" + table(rows))
		}
	}
	return b.String()
}

// short is as much of a hash as tells versions apart, and as rollback takes.
func short(hash string) string {
	if hash == "" {
		return "none"
	}
	return hash[:min(len(hash), 12)]
}

// origin says where a version is from.
func origin(s scripts.Source) string {
	switch s {
	case scripts.FromFile:
		return "its file"
	case scripts.FromOverride:
		return "an operator"
	case scripts.FromLastGood:
		return "last good"
	}
	return dash(string(s))
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}
