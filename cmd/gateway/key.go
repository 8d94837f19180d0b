package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/model-gateway/model-gateway/pkg/callers"
)

func keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "key", Short: "Make keys for callers, and their hashes",
		Long: `Keys tell the gateway which caller sends a call. The configuration has hashes of keys alone: who reads it cannot
use them. A caller may have several live keys, so replacing one is: make a new key, add its hash, give the key to the
caller, and take the old hash out once nobody uses it. The file is read again by itself.`,
		Example: "  gateway key new --caller recommend-svc\n  gateway key hash < key.txt",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(keyNewCommand(), keyHashCommand())
	return cmd
}

func keyNewCommand() *cobra.Command {
	var caller string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "new", Short: "Make a key of 256 random bits, and print it, its hash, and the line for the configuration",
		Long:    "Print a new key. It is shown this once and kept nowhere: hand it to the caller, and put its hash into the configuration.",
		Example: "  gateway key new --caller recommend-svc\n  gateway key new --json",
		Args:    keyArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.ContainsFunc(caller, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				return exitError{exitUsage, errors.New("--caller: a name has no control characters in it")}
			}
			key := callers.NewKey()
			return printKey(cmd.OutOrStdout(), keyResult{Key: key, Hash: callers.HashKey(key).String(), Caller: caller}, asJSON)
		},
	}
	cmd.Flags().StringVar(&caller, "caller", "", "name of the caller, for the line to paste")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print key, hash and caller as JSON")
	return cmd
}

func keyHashCommand() *cobra.Command {
	return &cobra.Command{
		Use: "hash", Short: "Read a key from the standard input, and print its hash",
		Long:    "Print the hash of a key that stands on the standard input, where no list of processes and no history of the shell shows it.",
		Example: "  gateway key hash < key.txt",
		Args:    keyArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := readKey(cmd.InOrStdin())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), callers.HashKey(key))
			return err
		},
	}
}

// keyArgs refuses arguments without printing them: one may well be a key.
func keyArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exitError{exitUsage, fmt.Errorf("%s takes no arguments; a key to hash belongs on the standard input", cmd.CommandPath())}
	}
	return nil
}

const (
	maxKey = 8 << 10 // bytes, as callers may send
	minKey = 22      // characters: 128 random bits, at the 64 characters of base64
)

// readKey reads one key; the line break behind it is none of it.
func readKey(in io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxKey+2))
	if err != nil {
		return "", fmt.Errorf("the standard input cannot be read: %w", err)
	}
	key := strings.TrimRight(string(text), "\r\n")
	switch {
	case key == "":
		return "", exitError{exitUsage, errors.New("no key stands on the standard input: gateway key hash < key.txt")}
	case len(key) > maxKey:
		return "", exitError{exitUsage, fmt.Errorf("what stands on the standard input has more than %d bytes; no key may be as long", maxKey)}
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' || r == ',' }):
		return "", exitError{exitUsage, errors.New("a key has visible ASCII characters alone and no comma, or no client could send it in a header")}
	case strings.Count(key, ".") == 2:
		return "", exitError{exitUsage, errors.New("a key has not just two dots: as a Bearer it would be taken for a token")}
	case len(key) < minKey:
		return "", exitError{exitUsage, fmt.Errorf("the key has %d characters, which can be guessed; it needs %d or more that are random: gateway key new", len(key), minKey)}
	}
	return key, nil
}

// keyResult is what --json prints.
type keyResult struct {
	Key    string `json:"key"`
	Hash   string `json:"hash"`
	Caller string `json:"caller,omitempty"`
}

func printKey(out io.Writer, k keyResult, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		return enc.Encode(k)
	}
	name := "NAME"
	if k.Caller != "" {
		name = yamlName(k.Caller)
	}
	_, err := fmt.Fprintf(out, `Key, shown this once and kept nowhere. The caller sends it as x-api-key, or as authorization: Bearer:

  %s

Its hash, for the configuration:

callers:
  - {name: %s, keys: ["%s"]}
`, k.Key, name, k.Hash)
	return err
}

// yamlName is a name as YAML has it: plain where nothing in it could mean something else.
func yamlName(name string) string {
	plain := strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
	switch first := name[0]; {
	case !plain, first == '-', first >= '0' && first <= '9':
		return strconv.Quote(name)
	}
	switch strings.ToLower(name) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		return strconv.Quote(name)
	}
	return name
}
