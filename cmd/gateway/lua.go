package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/model-gateway/model-gateway/pkg/luavm"
)

const maxLuaFile = 64 << 10 // bytes of a script, as a gateway takes them

// luaCommand is `gateway lua`: everything one does with a rule that is a script.
func luaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "lua", Short: "Try, compare, push and roll back the rules that are scripts",
		Long: `A script decides which target of a model a call goes to. These commands try one before it meets traffic, and change
what runs. A file saved in the scripts folder of a gateway is picked up by itself; nothing here is needed for that.

Without a gateway: test, run, split, replay, lint. Asking one on its admin port: list, status, push, rollback, and
split --running, replay --running.

Exit status of all of them: 0 it is well, 1 it is not (a case failed, a script has a mistake, a run ended badly, the gateway
refused or could not be asked), 2 the command was not called rightly.`,
		Example: `  gateway lua test scripts/lua
  gateway lua run scripts/lua/canary.lua --user u1
  gateway lua split scripts/lua/canary.lua --users 100000 --against new.lua
  gateway lua push fraud fraud.lua && gateway lua status fraud
  gateway lua rollback fraud`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "address" { // a word that people try as well
			name = "admin"
		}
		return pflag.NormalizedName(name)
	})
	cmd.AddCommand(luaTestCommand(), luaRunCommand(), luaSplitCommand(), luaReplayCommand(), luaLintCommand(),
		luaListCommand(), luaStatusCommand(), luaPushCommand(), luaRollbackCommand())
	return cmd
}

// arguments wants exactly the arguments that are named.
func arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) != len(names) {
			return fmt.Errorf("%s wants %s (%s --help has an example)", cmd.CommandPath(), strings.Join(names, " and "), cmd.CommandPath())
		}
		return nil
	}
}

// scriptName is the name under which a file's script is known: the file's, without .lua.
func scriptName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".lua") }

// readLua reads a script.
func readLua(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, exitError{exitFailed, fmt.Errorf("%s cannot be read: %w", path, cause(err))}
	}
	src, err := io.ReadAll(io.LimitReader(file, maxLuaFile+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, exitError{exitFailed, fmt.Errorf("%s cannot be read: %w", path, cause(err))}
	}
	if len(src) > maxLuaFile {
		return nil, exitError{exitFailed, fmt.Errorf("%s has more than %d KiB, the most that a script may have", path, maxLuaFile>>10)}
	}
	return src, nil
}

// cause leaves the path out of an error that repeats it.
func cause(err error) error {
	var of *os.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// compileLua reads and compiles the script in a file; the mistakes in it are printed to w.
func compileLua(w io.Writer, path string, deadline time.Duration) (*luavm.Script, error) {
	src, err := readLua(path)
	if err != nil {
		return nil, err
	}
	return compileSource(w, path, src, deadline)
}

// compileSource compiles src; where says what it is to the reader of its mistakes.
func compileSource(w io.Writer, where string, src []byte, deadline time.Duration) (*luavm.Script, error) {
	script, err := luavm.Compile(where, src, luavm.Limits{Deadline: deadline})
	if err == nil {
		return script, nil
	}
	var problems luavm.Problems
	if !errors.As(err, &problems) {
		return nil, exitError{exitFailed, err}
	}
	_, err = fmt.Fprintln(w, problems)
	return nil, exitError{exitFailed, errors.Join(err, fmt.Errorf("%s does not compile: %s", where, count(len(problems), "mistake")))}
}

// checkDeadline holds --deadline against its bounds.
func checkDeadline(d time.Duration) error {
	if d <= 0 || d > luavm.MaxDeadline {
		return exitError{exitUsage, fmt.Errorf("--deadline %s: a script gets more than nothing and at most %s", d, luavm.MaxDeadline)}
	}
	return nil
}
