package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/model-gateway/model-gateway/pkg/explain"
)

// explainFlags are what `gateway explain` was asked.
type explainFlags struct {
	explain.Question
	adminFlags
	asJSON            bool
	headers, metadata []string // NAME=VALUE
}

// explainCommand is `gateway explain`: what the running gateway would do with a call, and why.
func explainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain --model M",
		Short: "Say where a call would go, who may make it, which limits apply and what is left",
		Long: `Explain asks a running gateway what it would do with a call: which target it would go to and what each rule of the model's split
says to it, whether the caller may make it and by which rule, which limits apply and what is left in each, and which timeout counts, each with the reason. It takes no
token and sends nothing to a model.

The gateway is asked on its admin port: at --admin, else where the file of --config or GATEWAY_ADMIN says. Beyond loopback that
takes a key of a caller with the kind admin, from --key-file or GATEWAY_KEY.

Exit status: 0 such a call would be sent to the model, 1 it would be refused or the gateway could not be asked, 2 explain was
not called rightly.`,
		Example: `  gateway explain --model fraud --user ann
  gateway explain --model fraud --caller batch --version 2 --json | jq .target
  gateway explain --model fraud --user ann --header x-user-type=premium --metadata region=eu
  gateway explain --model fraud --admin http://gateway-0:8081 --key-file ~/.gateway-key`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exitError{exitUsage, fmt.Errorf("explain takes flags only, not %q; name the model with --model", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.Model == "" {
				return exitError{exitUsage, errors.New("--model is missing; name the model that the call would be for")}
			}
			for flag, all := range map[string][]string{"--header": f.headers, "--metadata": f.metadata} {
				for _, s := range all {
					if name, _, ok := strings.Cut(s, "="); !ok || name == "" {
						return exitError{exitUsage, fmt.Errorf("%s %q must be a name and a value, such as %s x-user-type=premium", flag, s, flag)}
					}
				}
			}
			return f.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Model, "model", "", "model that the call would be for")
	flags.StringVar(&f.Version, "version", "", "version that the call would name; empty leaves it to the gateway")
	flags.StringVar(&f.User, "user", "", "user that the call would name")
	flags.StringVar(&f.Caller, "caller", "", "declared caller that would make the call")
	flags.StringVar(&f.Role, "role", "", "role that the caller's token would carry")
	flags.StringVar(&f.Address, "address", "", "address that the call would come from, for limits per ip")
	flags.StringArrayVar(&f.headers, "header", nil, "header that the call would carry, NAME=VALUE; may come several times")
	flags.StringArrayVar(&f.metadata, "metadata", nil, "metadata that its message would carry, KEY=VALUE; may come several times")
	f.adminFlags.add(flags)
	flags.BoolVar(&f.asJSON, "json", false, "print the report as JSON")
	return cmd
}

func (f *explainFlags) run(ctx context.Context, out io.Writer) error {
	port, err := f.open()
	if err != nil {
		return err
	}
	report, err := f.ask(ctx, port)
	if err != nil {
		return err
	}
	if f.asJSON {
		err = printJSON(out, report)
	} else {
		err = report.WriteText(out)
	}
	if err == nil && !report.Served {
		return exitError{code: exitFailed}
	}
	return err
}

// ask puts the question to the gateway.
func (f *explainFlags) ask(ctx context.Context, port *adminPort) (*explain.Report, error) {
	query := url.Values{}
	for name, value := range map[string]string{"model": f.Model, "version": f.Version, "user": f.User, "caller": f.Caller, "role": f.Role, "address": f.Address} {
		if value != "" {
			query.Set(name, value)
		}
	}
	query["header"], query["metadata"] = f.headers, f.metadata
	code, body, err := port.ask(ctx, http.MethodGet, query, nil, "explain")
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, port.refusal(code, body, fmt.Sprintf("what answers at %s explains nothing; name the admin port with --admin", port.base))
	}
	report := new(explain.Report)
	if err := json.Unmarshal(body, report); err != nil || report.Access.Verdict == "" {
		return nil, exitError{exitFailed, fmt.Errorf("what answers at %s is no gateway's admin port", port.base)}
	}
	return report, nil
}
