package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/model-gateway/model-gateway/pkg/luavm"
	"github.com/model-gateway/model-gateway/pkg/scripts/cases"
)

// callFlags describe a call as a script sees it.
type callFlags struct {
	caller, model, version          string
	headers, metadata, params, told []string
	rows                            int64
	sequence, now                   string
	start                           bool
}

func (f *callFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.caller, "caller", "", "caller that sends the call")
	flags.StringVar(&f.model, "model", "", "model that the call is for, also the salt of a split without one (default: the script's name)")
	flags.StringVar(&f.version, "version", "", "version that the call names")
	flags.StringArrayVar(&f.headers, "header", nil, "header of the call, name=value; may be repeated")
	flags.StringArrayVar(&f.metadata, "metadata", nil, "metadata of the message, key=value; may be repeated")
	flags.StringArrayVar(&f.params, "param", nil, "request parameter, name=value; may be repeated")
	flags.Int64Var(&f.rows, "rows", 1, "rows of the call's first input")
	flags.StringVar(&f.sequence, "sequence", "", "id of the sequence that the call belongs to")
	flags.BoolVar(&f.start, "sequence-start", false, "the call is the first of its sequence")
	flags.StringVar(&f.now, "now", "", "time of the call, such as 2026-12-01T08:00:00Z (default: now)")
	flags.StringArrayVar(&f.told, "stats", nil, "what stats(target) answers, target=error_rate:0.2,p99:80ms,calls:500; may be repeated")
}

// call makes the call, for the user that may be ""; name is the script's.
func (f *callFlags) call(name, user string) (*cases.Call, error) {
	c := &cases.Call{
		Model: f.model, User: user, Caller: f.caller, Version: f.version, Rows: f.rows, Now: time.Now(),
		Sequence: cases.Sequence{ID: f.sequence, Start: f.start},
		Headers:  make(map[string][]string), Metadata: make(map[string]string), Params: make(map[string]any),
	}
	if c.Model == "" {
		c.Model = name
	}
	if f.now != "" {
		at, err := time.Parse(time.RFC3339, f.now)
		if err != nil {
			return nil, fmt.Errorf("--now %q is no time; write it like 2026-12-01T08:00:00Z", f.now)
		}
		c.Now = at
	}
	err := pairs("header", f.headers, func(key, value string) {
		key = strings.ToLower(strings.TrimSpace(key))
		c.Headers[key] = append(c.Headers[key], value)
	})
	if err == nil {
		err = pairs("metadata", f.metadata, func(key, value string) { c.Metadata[key] = value })
	}
	if err == nil {
		err = pairs("param", f.params, func(key, value string) { c.Params[key] = typed(value) })
	}
	if err == nil {
		c.Stats, err = parseStats(f.told)
	}
	return c, err
}

// pairs calls put for each name=value.
func pairs(flag string, all []string, put func(key, value string)) error {
	for _, pair := range all {
		key, value, err := cutPair(flag, pair)
		if err != nil {
			return err
		}
		put(key, value)
	}
	return nil
}

func cutPair(flag, pair string) (key, value string, err error) {
	key, value, ok := strings.Cut(pair, "=")
	if !ok || key == "" {
		return "", "", fmt.Errorf("--%s %q: write it as name=value", flag, pair)
	}
	return key, value, nil
}

// typed gives a parameter the type that it would have in a request.
func typed(value string) any {
	if b, err := strconv.ParseBool(value); err == nil && len(value) > 1 {
		return b
	}
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(value, 64); err == nil {
		return f
	}
	return value
}

// parseStats reads what --stats says of targets. Where calls are not named there were a thousand.
func parseStats(told []string) (map[string]luavm.Stats, error) {
	stats := make(map[string]luavm.Stats, len(told))
	for _, one := range told {
		target, fields, err := cutPair("stats", one)
		if err != nil {
			return nil, fmt.Errorf("--stats %q: write it as target=error_rate:0.2,p99:80ms", one)
		}
		s := luavm.Stats{Calls: 1000}
		errors := -1.0
		for _, field := range strings.Split(fields, ",") {
			name, value, _ := strings.Cut(field, ":")
			var err error
			switch name {
			case "calls":
				s.Calls, err = strconv.ParseUint(value, 10, 64)
			case "errors":
				errors, err = strconv.ParseFloat(value, 64)
			case "error_rate":
				s.ErrorRate, err = strconv.ParseFloat(value, 64)
			case "p50":
				s.P50, err = time.ParseDuration(value)
			case "p99":
				s.P99, err = time.ParseDuration(value)
			case "p999":
				s.P999, err = time.ParseDuration(value)
			default:
				return nil, fmt.Errorf("--stats %q: %q is none of calls, errors, error_rate, p50, p99, p999", one, name)
			}
			if err != nil || s.ErrorRate < 0 || s.ErrorRate > 1 {
				return nil, fmt.Errorf("--stats %q: %q cannot be read; write calls:500, error_rate:0.2 (0 to 1), p99:80ms", one, field)
			}
		}
		switch {
		case errors >= 0 && s.Calls > 0 && s.ErrorRate == 0:
			s.Errors, s.ErrorRate = uint64(errors), errors/float64(s.Calls)
		case errors < 0:
			s.Errors = uint64(s.ErrorRate*float64(s.Calls) + 0.5)
		}
		stats[target] = s
	}
	return stats, nil
}
