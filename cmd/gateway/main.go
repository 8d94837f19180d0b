// Command gateway is model-gateway: an ML-aware gateway in front of Triton and other KServe v2 servers.
//
//	gateway serve              serve, configured by a file or by TRITON_GRPC_HOST alone
//	gateway sandbox [--tour]   serve in front of an embedded model server, to try things out
//	gateway check FILE         say everything that is wrong with a configuration
//	gateway explain --model M  say what a running gateway would do with a call, and why
//	gateway lua test DIR       try the rules that are scripts; run, split, replay, lint, push and roll them back
//	gateway key new            make a key for a caller
//	gateway version
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes that scripts can tell apart.
const (
	exitFailed = 1 // it was tried and did not work
	exitUsage  = 2 // it was asked for in a way that makes no sense
)

// exitError ends the process with a code, after its own output has said what there is to say.
type exitError struct {
	code int
	err  error // printed when set
}

func (e exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	root := &cobra.Command{
		Use: "gateway", Short: "An ML-aware gateway in front of Triton",
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitError{exitUsage, err} })
	root.AddCommand(serveCommand(), sandboxCommand(), checkCommand(), explainCommand(), luaCommand(), keyCommand(), versionCommand())
	misuse(root.Commands())
	root.Args = cobra.NoArgs
	root.RunE = func(c *cobra.Command, given []string) error { return c.Help() }
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(os.Stderr, "gateway:", text)
	}
	var exit exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	return exitFailed
}

// misuse has arguments that a command does not take end with exitUsage, those of its own commands included.
func misuse(commands []*cobra.Command) {
	for _, cmd := range commands {
		if args := cmd.Args; args != nil {
			cmd.Args = func(c *cobra.Command, given []string) error {
				if err := args(c, given); err != nil {
					return exitError{exitUsage, err}
				}
				return nil
			}
		}
		misuse(cmd.Commands())
	}
}
