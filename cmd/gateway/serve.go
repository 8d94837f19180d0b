package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/model-gateway/model-gateway/pkg/admin"
	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/gateway"
)

func serveCommand() *cobra.Command {
	var path, level string
	var profile bool
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve: gRPC and HTTP on one port, operators on another",
		Long: `Serve inference traffic.

Without --config, TRITON_GRPC_HOST=host:port is all that is needed: every model of that server passes through
under its own name. With a file, it is read again when it changes and on SIGHUP; a file with mistakes changes
nothing. SIGTERM turns readiness off, serves on for listen.drain.before, lets calls finish, and exits 0.`,
		Example: "  TRITON_GRPC_HOST=triton:8001 gateway serve\n  gateway serve --config gateway.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLog(cmd.ErrOrStderr(), level)
			if err != nil {
				return exitError{exitUsage, err}
			}
			defer runtime.KeepAlive(limitMemory(log))
			return serve(cmd.Context(), path, profile, log)
		},
	}
	cmd.Flags().StringVar(&path, "config", os.Getenv("GATEWAY_CONFIG"), "configuration file (GATEWAY_CONFIG)")
	cmd.Flags().StringVar(&level, "log", "info", "least level that is logged: debug, info, warn, error")
	cmd.Flags().BoolVar(&profile, "pprof", false, "open /debug/pprof/ on the admin port, for loopback")
	return cmd
}

func newLog(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log %s: use debug, info, warn or error", level)
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})), nil
}

// limitMemory gives the runtime its limit from the container, where there is one, and lets garbage grow under it: most
// memory here is buffers that come and go with calls. What the environment says of either itself stands.
//
// It gives a ballast to be kept: memory that is never touched, so there is none of it but addresses. A gateway at rest
// keeps some 3 MB, by which alone the collector would run for every 11 MB of garbage, dozens of times a second under
// load; beside the ballast it waits for 27 MB. Where a lot is kept it changes next to nothing.
func limitMemory(log *slog.Logger) (ballast []byte) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	ballast = make([]byte, 4<<20)
	limit, err := memlimit.Set(memlimit.WithRatio(0.9))
	if err != nil {
		log.Warn("no memory limit could be found; set GOMEMLIMIT", "error", err)
		return ballast
	}
	log.Debug("memory limit", "bytes", limit)
	return ballast
}

// serve runs a gateway until ctx ends. path may be empty.
func serve(ctx context.Context, path string, profile bool, log *slog.Logger) error {
	// From the first moment to the last: a SIGHUP that nobody waits for would end the process.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	cfg, err := loadFirst(path, log)
	if err != nil {
		return err
	}
	for _, note := range cfg.Notes {
		log.Warn("about the configuration", "note", note)
	}
	ports, err := gateway.Listen(cfg)
	if err != nil {
		return err
	}
	r := newReloader(log)
	g, err := gateway.New(cfg, gateway.Options{Log: log, Version: buildVersion(), Profile: profile, Audit: r.audit, Reload: r.reload}) //nolint:contextcheck // what it starts ends with Run
	if err != nil {
		return err
	}
	r.serves(g)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	if path != "" {
		keep(cfg, log)
		r.follow(watching, path, os.Getenv, cfg, func(next *config.Config) { keep(next, log) })
	}
	go r.onHangup(hangup)
	return g.Run(ctx, ports)
}

// reloader puts new configurations to use, whoever asks for it, and keeps the record of that.
type reloader struct {
	gateway *gateway.Gateway
	watcher *config.Watcher // nil without a file
	audit   *admin.Audit
	log     *slog.Logger
	serving chan struct{} // closed once gateway is set
}

func newReloader(log *slog.Logger) *reloader {
	r := &reloader{log: log, serving: make(chan struct{})}
	r.audit = admin.NewAudit(log, func() string {
		select {
		case <-r.serving:
			return r.gateway.StateDir()
		default:
			return ""
		}
	})
	return r
}

// serves tells which gateway it is for.
func (r *reloader) serves(g *gateway.Gateway) {
	r.gateway = g
	close(r.serving)
}

// follow watches the file until ctx ends. taken is told what has been put to use.
func (r *reloader) follow(ctx context.Context, path string, env func(string) string, first *config.Config, taken func(*config.Config)) {
	r.watcher = config.NewWatcher(path, env, func(next *config.Config) error { //nolint:contextcheck // upstreams outlive the reload that made them
		if err := r.gateway.Reload(next); err != nil {
			return err
		}
		taken(next)
		return nil
	}, r.log)
	r.watcher.Seen(first)
	r.watcher.Around = func(use func() error) error {
		return r.audit.Reload("file", "", r.hash, func() error { return r.noted(use()) })
	}
	go r.watcher.Run(ctx)
}

// reload reads the file again because somebody asked for it, who keeps the record.
func (r *reloader) reload() error {
	if r.watcher == nil {
		return errors.New("there is no configuration file to read again")
	}
	return r.noted(r.watcher.Reload())
}

// onHangup reads the file again on each SIGHUP, changed or not.
func (r *reloader) onHangup(hangup <-chan os.Signal) {
	for range hangup {
		if r.watcher == nil {
			r.log.Warn("SIGHUP: there is no configuration file to read again")
			continue
		}
		_ = r.audit.Reload("signal", "", r.hash, r.reload) // the watcher has logged what is wrong
	}
}

func (r *reloader) noted(err error) error {
	if err != nil {
		r.gateway.ReloadRefused()
	}
	return err
}

func (r *reloader) hash() string { return r.gateway.ConfigHash() }

// loadFirst reads the configuration of a start. With mistakes in it, the last good one serves, where one was kept.
func loadFirst(path string, log *slog.Logger) (*config.Config, error) {
	cfg, err := config.Load(path, os.Getenv)
	if err == nil {
		return cfg, nil
	}
	last, lastErr := config.LoadLastGood(path, os.Getenv)
	if lastErr != nil {
		return nil, err
	}
	log.Error("the configuration has mistakes; the last good one serves", "file", path, "mistakes", err.Error(), "last_good", last.Path)
	return last, nil
}

// keep stores cfg as the last good configuration.
func keep(cfg *config.Config, log *slog.Logger) {
	if cfg.StateDir == "" {
		return // check says so, once
	}
	if err := config.KeepLastGood(cfg); err != nil {
		log.Warn("the last good configuration could not be kept; a start with a broken file will fail", "state_dir", cfg.StateDir, "error", err)
	}
}
