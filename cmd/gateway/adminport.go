package main

import (
	"bytes"
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

	"github.com/spf13/pflag"

	"github.com/model-gateway/model-gateway/pkg/config"
)

const (
	defaultAdmin = "http://127.0.0.1:8081"
	adminTimeout = 10 * time.Second
	maxReport    = 4 << 20 // bytes of an answer
	maxKeyFile   = 16 << 10
)

// adminFlags say which gateway a command asks on its admin port, and with which key.
type adminFlags struct {
	config, admin, keyFile string
}

func (f *adminFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.config, "config", os.Getenv("GATEWAY_CONFIG"), "configuration file that says where the admin port is (GATEWAY_CONFIG)")
	flags.StringVar(&f.admin, "admin", "", "URL of the admin port (default "+defaultAdmin+")")
	flags.StringVar(&f.keyFile, "key-file", "", "file with the key of a caller of kind admin (or GATEWAY_KEY)")
}

// open gives the port that the flags name. Nothing is sent yet.
func (f *adminFlags) open() (*adminPort, error) {
	base, err := f.port()
	if err != nil {
		return nil, err
	}
	key, err := f.key()
	if err != nil {
		return nil, err
	}
	return &adminPort{base: base, key: key}, nil
}

// port gives the URL of the admin port.
func (f *adminFlags) port() (*url.URL, error) {
	address := f.admin
	if address == "" && f.config != "" {
		cfg, err := config.Load(f.config, os.Getenv)
		switch {
		case err != nil:
			return nil, exitError{exitFailed, fmt.Errorf("%s does not say where the admin port is, since it has mistakes; gateway check names them, and --admin does without the file", f.config)}
		case cfg.Listen.Admin == "":
			return nil, exitError{exitFailed, fmt.Errorf("%s turns the admin port off (listen.admin), and a gateway is asked there", f.config)}
		}
		address = "http://" + reachable(cfg.Listen.Admin)
	}
	if listen := os.Getenv("GATEWAY_ADMIN"); address == "" && listen != "" && listen != "off" {
		address = "http://" + reachable(listen)
	}
	if address == "" {
		address = defaultAdmin
	}
	if !strings.Contains(address, "://") {
		address = "http://" + address
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
func (f *adminFlags) key() (string, error) {
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

// adminPort is the admin port of one gateway.
type adminPort struct {
	base *url.URL
	key  string
}

// ask sends one request and gives the whole answer, whatever its code. An error says that none came.
func (p *adminPort) ask(ctx context.Context, method string, query url.Values, body []byte, path ...string) (code int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	at := p.base.JoinPath(path...)
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(body))
	if err != nil {
		return 0, nil, exitError{exitUsage, err}
	}
	if p.key != "" {
		request.Header.Set("x-api-key", p.key)
	}
	// A key goes to no other place than the one that was named.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, p.unreachable(err)
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxReport+1))
	if err != nil {
		return 0, nil, p.unreachable(err)
	}
	if len(answer) > maxReport {
		return 0, nil, exitError{exitFailed, fmt.Errorf("what answers at %s sends more than %d MiB", p.base, maxReport>>20)}
	}
	return response.StatusCode, answer, nil
}

func (p *adminPort) unreachable(err error) error {
	var of *url.Error // repeats the whole URL
	if errors.As(err, &of) {
		err = of.Err
	}
	return exitError{exitFailed, fmt.Errorf("no gateway answers at %s: %w; is it running, and is that its admin port (listen.admin)? Name it with --admin, or its file with --config", p.base, err)}
}

// refusal makes of an answer that is none of 200 an error that says what to do; absent is said of a path that is not there.
func (p *adminPort) refusal(code int, body []byte, absent string) error {
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
		return exitError{exitUsage, errors.New(text)}
	case http.StatusUnauthorized, http.StatusForbidden:
		return exitError{exitFailed, fmt.Errorf("the gateway at %s refuses: %s (a key is taken from --key-file or GATEWAY_KEY)", p.base, text)}
	case http.StatusNotFound:
		return exitError{exitFailed, errors.New(absent)}
	}
	return exitError{exitFailed, fmt.Errorf("the gateway at %s answers %d: %s", p.base, code, text)}
}

// printJSON prints v as people and programs read it.
func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
