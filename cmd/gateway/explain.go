package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/explain"
)

const (
	defaultAdmin   = "http://127.0.0.1:8081"
	explainTimeout = 10 * time.Second
	maxReport      = 4 << 20 // bytes of an answer
	maxKeyFile     = 16 << 10
)

// explainFlags are what `gateway explain` was asked.
type explainFlags struct {
	explain.Question
	config, admin, keyFile string
	asJSON                 bool
}

// explainCommand is `gateway explain`: what the running gateway would do with a call, and why.
func explainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain --model M",
		Short: "Say where a call would go, who may make it, which limits apply and what is left",
		Long: `Explain asks a running gateway what it would do with a call: which target it would go to, whether the caller may make
it and by which rule, which limits apply and what is left in each, and which timeout counts, each with the reason. It takes no
token and sends nothing to a model.

The gateway is asked on its admin port: at --admin, else where the file of --config or GATEWAY_ADMIN says. Beyond loopback that
takes a key of a caller with the kind admin, from --key-file or GATEWAY_KEY.

Exit status: 0 such a call would be sent to the model, 1 it would be refused or the gateway could not be asked, 2 explain was
not called rightly.`,
		Example: `  gateway explain --model fraud --user ann
  gateway explain --model fraud --caller batch --version 2 --json | jq .target
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
			return f.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Model, "model", "", "model that the call would be for")
	flags.StringVar(&f.Version, "version", "", "version that the call would name; empty leaves it to the gateway")
	flags.StringVar(&f.User, "user", "", "user that the call would name")
	flags.StringVar(&f.Caller, "caller", "", "declared caller that would make the call")
	flags.StringVar(&f.Address, "address", "", "address that the call would come from, for limits per ip")
	flags.StringVar(&f.config, "config", os.Getenv("GATEWAY_CONFIG"), "configuration file that says where the admin port is (GATEWAY_CONFIG)")
	flags.StringVar(&f.admin, "admin", "", "URL of the admin port (default "+defaultAdmin+")")
	flags.StringVar(&f.keyFile, "key-file", "", "file with the key of a caller of kind admin (or GATEWAY_KEY)")
	flags.BoolVar(&f.asJSON, "json", false, "print the report as JSON")
	return cmd
}

func (f *explainFlags) run(ctx context.Context, out io.Writer) error {
	base, err := f.port()
	if err != nil {
		return err
	}
	key, err := f.key()
	if err != nil {
		return err
	}
	report, err := f.ask(ctx, base, key)
	if err != nil {
		return err
	}
	if f.asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		err = enc.Encode(report)
	} else {
		err = report.WriteText(out)
	}
	if err == nil && !report.Served {
		return exitError{code: exitFailed}
	}
	return err
}

// port gives the URL of the admin port.
func (f *explainFlags) port() (*url.URL, error) {
	address := f.admin
	if address == "" && f.config != "" {
		cfg, err := config.Load(f.config, os.Getenv)
		switch {
		case err != nil:
			return nil, exitError{exitFailed, fmt.Errorf("%s does not say where the admin port is, since it has mistakes; gateway check names them, and --admin does without the file", f.config)}
		case cfg.Listen.Admin == "":
			return nil, exitError{exitFailed, fmt.Errorf("%s turns the admin port off (listen.admin); explain needs it", f.config)}
		}
		address = "http://" + reachable(cfg.Listen.Admin)
	}
	if listen := os.Getenv("GATEWAY_ADMIN"); address == "" && listen != "" && listen != "off" {
		address = "http://" + reachable(listen)
	}
	if address == "" {
		address = defaultAdmin
	}
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, exitError{exitUsage, fmt.Errorf("--admin %q is no URL; write it like %s", address, defaultAdmin)}
	}
	return u, nil
}

// reachable gives an address at which a port that listens on all of them can be asked.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip, err := netip.ParseAddr(host); host == "" || (err == nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// key reads the key to ask with; "" is none.
func (f *explainFlags) key() (string, error) {
	key := os.Getenv("GATEWAY_KEY")
	if f.keyFile != "" {
		file, err := os.Open(f.keyFile)
		if err != nil {
			return "", exitError{exitFailed, fmt.Errorf("--key-file: %w", err)}
		}
		text, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
		if err = errors.Join(err, file.Close()); err != nil {
			return "", exitError{exitFailed, fmt.Errorf("--key-file %s cannot be read: %w", f.keyFile, err)}
		}
		key = string(text)
	}
	key = strings.TrimSpace(key)
	if strings.ContainsAny(key, "\r\n") {
		return "", exitError{exitUsage, errors.New("the key has more than one line; the file has the key and nothing else")}
	}
	return key, nil
}

// ask puts the question to the gateway.
func (f *explainFlags) ask(ctx context.Context, base *url.URL, key string) (*explain.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	query := url.Values{}
	for name, value := range map[string]string{"model": f.Model, "version": f.Version, "user": f.User, "caller": f.Caller, "address": f.Address} {
		if value != "" {
			query.Set(name, value)
		}
	}
	at := base.JoinPath("explain")
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, exitError{exitUsage, err}
	}
	if key != "" {
		request.Header.Set("x-api-key", key)
	}
	// A key goes to no other place than the one that was named.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(request)
	if err != nil {
		return nil, exitError{exitFailed, unreachable(base, err)}
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxReport))
	if err != nil {
		return nil, exitError{exitFailed, unreachable(base, err)}
	}
	return read(base, answer.StatusCode, body)
}

func unreachable(base *url.URL, err error) error {
	var of *url.Error // repeats the whole URL
	if errors.As(err, &of) {
		err = of.Err
	}
	return fmt.Errorf("no gateway answers at %s: %w; is it running, and is that its admin port (listen.admin)? Name it with --admin, or its file with --config", base, err)
}

// read makes of an answer a report, or an error that says what to do.
func read(base *url.URL, code int, body []byte) (*explain.Report, error) {
	if code == http.StatusOK {
		report := new(explain.Report)
		if err := json.Unmarshal(body, report); err != nil || report.Access.Verdict == "" {
			return nil, exitError{exitFailed, fmt.Errorf("what answers at %s is no gateway's admin port", base)}
		}
		return report, nil
	}
	var said struct {
		Error string `json:"error"`
	}
	text := strings.TrimSpace(string(body))
	if json.Unmarshal(body, &said) == nil && said.Error != "" {
		text = said.Error
	}
	text = text[:min(len(text), 1024)]
	switch code {
	case http.StatusBadRequest:
		return nil, exitError{exitUsage, errors.New(text)}
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, exitError{exitFailed, fmt.Errorf("the gateway at %s refuses: %s (a key is taken from --key-file or GATEWAY_KEY)", base, text)}
	case http.StatusNotFound:
		return nil, exitError{exitFailed, fmt.Errorf("what answers at %s explains nothing; name the admin port with --admin", base)}
	}
	return nil, exitError{exitFailed, fmt.Errorf("the gateway at %s answers %d: %s", base, code, text)}
}
