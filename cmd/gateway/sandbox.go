package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/gateway"
	"github.com/model-gateway/model-gateway/pkg/sandbox"
	tritonmodels "github.com/model-gateway/model-gateway/triton-models"
)

// sandboxFlags are the flags of gateway sandbox.
type sandboxFlags struct {
	data, admin, triton, faults string
	models, config, level       string
	headers                     string
	tour                        bool
}

func sandboxCommand() *cobra.Command {
	var f sandboxFlags
	cmd := &cobra.Command{
		Use: "sandbox", Short: "Serve in front of an embedded model server: no GPU, Docker, Python or Redis",
		Long: `Serve in front of an embedded model server that speaks Triton's protocol, loads real small models and computes
them on this machine. Everything runs in this one process and ends with it.`,
		Example: "  gateway sandbox\n  gateway sandbox --tour\n  gateway sandbox --models ./triton-models --data 127.0.0.1:9090",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLog(cmd.ErrOrStderr(), f.level)
			if err != nil {
				return exitError{exitUsage, err}
			}
			if f.config != "" { // what the file says counts, unless a flag says otherwise
				for flag, address := range map[string]*string{"data": &f.data, "admin": &f.admin} {
					if !cmd.Flags().Changed(flag) {
						*address = ""
					}
				}
			}
			return runSandbox(cmd.Context(), f, cmd, log)
		},
	}
	cmd.Flags().StringVar(&f.data, "data", "127.0.0.1:8080", "where the gateway serves gRPC and HTTP; with --config as the file says, unless given")
	cmd.Flags().StringVar(&f.admin, "admin", "127.0.0.1:8081", "where it serves operators; with --config as the file says, unless given")
	cmd.Flags().StringVar(&f.triton, "triton", "127.0.0.1:8001", "where the embedded model server listens")
	cmd.Flags().StringVar(&f.faults, "faults", "127.0.0.1:8082", "where faults of the model server can be asked for over HTTP; off to do without")
	cmd.Flags().StringVar(&f.models, "models", "", "model repository to load; without it the embedded one")
	cmd.Flags().StringVar(&f.headers, "forward-headers", "", "pattern of metadata names that the models see as parameters, as Triton's --grpc-header-forward-pattern")
	cmd.Flags().StringVar(&f.config, "config", "", "configuration file of the gateway, read again when it changes; its upstream should name the address of --triton")
	cmd.Flags().StringVar(&f.level, "log", "warn", "least level that is logged: debug, info, warn, error")
	cmd.Flags().BoolVar(&f.tour, "tour", false, "play a tour against the sandbox, print what happens, and end")
	return cmd
}

func runSandbox(ctx context.Context, f sandboxFlags, cmd *cobra.Command, log *slog.Logger) error {
	began := time.Now()
	out := cmd.OutOrStdout()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, err := startModels(f, log)
	if err != nil {
		return err
	}
	defer server.Stop()
	stopFaults, err := serveFaults(f, server)
	if err != nil {
		return err
	}
	defer stopFaults()
	cfg, err := config.Load(f.config, sandboxEnv(f))
	if err != nil {
		return err
	}
	ports, err := gateway.Listen(cfg)
	if err != nil {
		return fmt.Errorf("%w; choose other addresses with --data and --admin", err)
	}
	r := newReloader(log)
	g, err := gateway.New(cfg, gateway.Options{Log: log, Version: buildVersion(), Audit: r.audit, Reload: r.reload}) //nolint:contextcheck // what it starts ends with Run
	if err != nil {
		return err
	}
	r.serves(g)
	if f.config != "" {
		r.follow(ctx, f.config, sandboxEnv(f), cfg, func(*config.Config) {
			fmt.Fprintf(out, "%s has changed, and is in force.\n", f.config)
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx, ports) }()
	if err := awaitReady(ctx, ports.Data.Addr().String(), ended); err != nil {
		return err
	}
	address := ports.Data.Addr().String()
	if f.admin = "off"; ports.Admin != nil {
		f.admin = ports.Admin.Addr().String()
	}
	if f.tour {
		err = tour(ctx, out, address)
	} else {
		welcome(ctx, out, f, address, server, time.Since(began))
		<-ctx.Done()
	}
	cancel()
	return errors.Join(err, <-ended)
}

// sandboxEnv gives the configuration what the flags say. A drain that waits is of no use on a desk.
func sandboxEnv(f sandboxFlags) func(string) string {
	return func(name string) string {
		switch name {
		case "TRITON_GRPC_HOST":
			return f.triton
		case "GATEWAY_DATA":
			return f.data
		case "GATEWAY_ADMIN":
			return f.admin
		case "GATEWAY_DRAIN_BEFORE":
			return "0s"
		}
		return ""
	}
}

// startModels starts the embedded model server.
func startModels(f sandboxFlags, log *slog.Logger) (*sandbox.Server, error) {
	var models fs.FS = tritonmodels.FS
	if f.models != "" {
		if _, err := os.Stat(f.models); err != nil {
			return nil, fmt.Errorf("--models: %w", err)
		}
		models = os.DirFS(f.models)
	}
	server, err := sandbox.New(sandbox.Options{Models: models, ForwardHeaders: f.headers, Logger: log})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", f.triton)
	if err != nil {
		server.Stop()
		return nil, fmt.Errorf("%w; choose another address with --triton", err)
	}
	go func() {
		if err := server.Serve(l); err != nil {
			log.Error("the embedded model server ended", "error", err)
		}
	}()
	return server, nil
}

// serveFaults opens the port on which faults can be asked for.
func serveFaults(f sandboxFlags, server *sandbox.Server) (stop func(), err error) {
	if f.faults == "off" || f.tour {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", f.faults)
	if err != nil {
		return nil, fmt.Errorf("%w; choose another address with --faults, or --faults off", err)
	}
	s := &http.Server{Handler: server.FaultsHandler(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }()
	return func() { _ = s.Close() }, nil
}

// awaitReady waits until the gateway says that it is ready.
func awaitReady(ctx context.Context, address string, ended <-chan error) error {
	client := http.Client{Timeout: time.Second}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if r, err := client.Get("http://" + address + "/readyz"); err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
