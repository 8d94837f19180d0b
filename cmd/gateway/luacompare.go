package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/luavm"
)

// checkCompared holds the flags that say what a script is compared with against each other; it gives the percents that
// may change, or -1.
func checkCompared(against string, running bool, maxChanged string) (float64, error) {
	switch {
	case against != "" && running:
		return 0, exitError{exitUsage, errors.New("--against and --running both name what to compare with; give one")}
	case maxChanged == "":
		return -1, nil
	case against == "" && !running:
		return 0, exitError{exitUsage, errors.New("--max-changed needs --against or --running: changed from what?")}
	}
	return parsePercent("max-changed", maxChanged)
}

// parsePercent reads 5, 5% or 0.5%.
func parsePercent(flag, text string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, "%")), 64)
	if err != nil || !(v >= 0 && v <= 100) {
		return 0, exitError{exitUsage, fmt.Errorf("--%s %q: write percents, such as 5%%", flag, text)}
	}
	return v, nil
}

// other is what a script is compared with; without a script it is nothing.
type other struct {
	script *luavm.Script
	where  string // what it is, for who reads of it
	model  string // that it runs for; "" when unknown or several
}

// compared compiles what a script is compared with: a file, or what runs under a name.
func compared(ctx context.Context, out io.Writer, against string, running bool, admin *adminFlags, name string, deadline time.Duration) (o other, err error) {
	switch {
	case against != "":
		o.where = against
		o.script, err = compileLua(out, against, deadline)
	case running:
		port, err := admin.open()
		if err != nil {
			return o, err
		}
		info, err := port.script(ctx, name)
		if err != nil {
			return o, err
		}
		if info.Text == "" {
			return o, exitError{exitFailed, fmt.Errorf("no version of %s runs there, so there is nothing to compare with", name)}
		}
		if len(info.Models) == 1 {
			o.model = info.Models[0]
		}
		o.where = fmt.Sprintf("%s at %s", name, port.base.Host)
		o.script, err = compileSource(out, o.where, []byte(info.Text), deadline)
		return o, err
	}
	return o, err
}
