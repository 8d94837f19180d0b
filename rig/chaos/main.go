// Command chaos breaks what the gateway leans on, under load that does not wait, and checks what clients see.
//
//	go run ./rig/chaos            the short form, part of make test
//	go run ./rig/chaos --long     everything, with real Tritons: make chaos
//	go run ./rig/chaos --only kill --cast embedded
//
// Each scenario is a row: calls sent, what became of them, how long the slowest took, how long the fault took to be noticed
// and its end to be over. Exit code 1 when something that must hold does not.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	castEmbedded = "embedded"
	castReal     = "real"
)

func main() {
	var o options
	only := flag.String("only", "", "scenarios whose name this pattern finds")
	flag.StringVar(&o.cast, "cast", "", "which model servers: real or embedded; without it each scenario's own")
	flag.StringVar(&o.binary, "gateway", "", "a gateway that is built already")
	flag.BoolVar(&o.long, "long", false, "all scenarios, not only the short form")
	show := flag.Bool("list", false, "print the scenarios and what must hold, and end")
	flag.Parse()
	if *show {
		for _, s := range scenarios {
			fmt.Printf("%-34s %-5s %s\n", s.name, map[bool]string{true: "short", false: "long"}[s.short != ""], s.about)
		}
		return
	}
	pattern, err := regexp.Compile("(?i)" + *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: --only:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	held, err := play(ctx, o, func(s scenario) bool {
		return pattern.MatchString(s.name) && (o.long || s.short != "" || *only != "")
	})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	if !held {
		os.Exit(1)
	}
}

// play runs the scenarios that are chosen, one after the other, and prints the table.
func play(ctx context.Context, o options, chosen func(scenario) bool) (held bool, err error) {
	if err := prepare(ctx, &o); err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(o.dir) }()
	defer forgetSharedMemory()
	began := time.Now()
	held = true
	var rows []row
	for _, s := range scenarios {
		if !chosen(s) {
			continue
		}
		for _, cast := range s.casts(o) {
			run := o
			run.cast = cast
			r, ok := one(ctx, run, s)
			rows = append(rows, r)
			held = held && ok
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
		}
	}
	fmt.Printf("\n%s\n%d scenarios in %v; logs in %s\n", table(rows), len(rows), time.Since(began).Round(time.Second), o.logs)
	return held, nil
}

// casts are the model servers that s is played with.
func (s scenario) casts(o options) []string {
	switch {
	case o.cast != "":
		return []string{o.cast}
	case o.long || s.short == "":
		return s.long
	}
	return []string{s.short}
}

// one plays one scenario and tells how it went; again, if it did not hold and the machine stalled meanwhile.
func one(ctx context.Context, o options, s scenario) (row, bool) {
	for n := 1; ; n++ {
		h := watchHost()
		r, held := once(ctx, o, s)
		stalled, longest, late := h.seen()
		if held || !stalled || n == plays || ctx.Err() != nil {
			return r, held
		}
		fmt.Printf("   the machine stood still for %v meanwhile, %v in all: played again\n", longest.Round(time.Millisecond), late.Round(time.Millisecond))
	}
}

// once plays one scenario once.
func once(ctx context.Context, o options, s scenario) (row, bool) {
	b := &bench{Context: ctx, options: o, name: s.name, detect: -1, recovery: -1}
	began := time.Now()
	func() {
		defer b.close()
		defer func() {
			switch p := recover().(type) {
			case nil:
			case stopped:
				b.check(b.skipped != "", "%s", p.why)
			default:
				panic(p)
			}
		}()
		s.run(b)
	}()
	var r row
	if b.load != nil {
		r = b.load.row(s.name)
	} else {
		r = (&tally{}).row(s.name)
	}
	r.detect, r.recovery = b.detect, b.recovery
	switch {
	case b.skipped != "":
		r.verdict = "skipped: " + b.skipped
	case len(b.problems) > 0:
		r.verdict = "DOES NOT HOLD"
	default:
		r.verdict = "holds"
	}
	if o.cast == castReal {
		r.name += " (Triton)"
	}
	fmt.Printf("== %s: %s (%v)\n", r.name, r.verdict, time.Since(began).Round(100*time.Millisecond))
	for _, n := range b.notes {
		fmt.Println("   " + n)
	}
	for _, p := range b.problems {
		fmt.Println("   DOES NOT HOLD: " + strings.TrimSuffix(p, "\n"))
	}
	if b.load != nil && (len(b.problems) > 0 || o.long) {
		fmt.Print(reasons(b.load.records(every)))
	}
	return r, len(b.problems) == 0
}

// prepare finds the source, makes the folders and builds the gateway.
func prepare(ctx context.Context, o *options) (err error) {
	if o.root, err = sourceRoot(); err != nil {
		return err
	}
	cache := filepath.Join(o.root, ".cache", "chaos")
	o.logs = filepath.Join(cache, "logs")
	if err := os.RemoveAll(o.logs); err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	if o.dir, err = os.MkdirTemp(cache, "run-"); err != nil {
		return err
	}
	if o.binary != "" {
		o.binary, err = filepath.Abs(o.binary)
		return err
	}
	o.binary = filepath.Join(cache, "gateway")
	build := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-o", o.binary, "./cmd/gateway")
	build.Dir, build.Stdout, build.Stderr = o.root, os.Stdout, os.Stderr
	return build.Run()
}

// sourceRoot is the folder of go.mod.
func sourceRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no go.mod here or above; run this in the source")
}
