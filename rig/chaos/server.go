package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// server is a model server: a real Triton, or a `gateway sandbox` whose embedded one is what is called.
type server struct {
	name    string
	address string // gRPC
	http    string // of a real one
	metrics string // of a real one
	faults  string // URL, of an embedded one
	argv    []string
	env     []string
	log     string
	models  []string // that must be ready before it counts as up
	p       *process
	conn    *grpc.ClientConn
}

// startPatience is how long a model server may take to come up on a busy machine.
const startPatience = 120 * time.Second

// boot starts it.
func (s *server) boot() (err error) {
	s.p, err = launch(s.name, s.log, s.env, s.argv)
	return err
}

// ready waits until its models are. A Triton that crashes while it starts on a starved machine (it does: boost's
// lock_exception) is started again, as Kubernetes would.
func (s *server) ready(ctx context.Context) (err error) {
	for range 3 {
		if err = s.awaitModels(ctx); err == nil || s.p.running() || ctx.Err() != nil {
			return err
		}
		if err := s.boot(); err != nil {
			return err
		}
	}
	return err
}

func (s *server) awaitModels(ctx context.Context) error {
	client := tritonpb.NewGRPCInferenceServiceClient(s.conn)
	return await(ctx, s.p, startPatience, func(ctx context.Context) error {
		for _, m := range s.models {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			a, err := client.ModelReady(ctx, &tritonpb.ModelReadyRequest{Name: m})
			cancel()
			if err != nil {
				return err
			}
			if !a.Ready {
				return fmt.Errorf("%s: model %s is not ready", s.name, m)
			}
		}
		return nil
	})
}

func (s *server) kill()     { s.p.kill() }
func (s *server) pause()    { s.p.signal(syscall.SIGSTOP) }
func (s *server) carryOn()  { s.p.signal(syscall.SIGCONT) }
func (s *server) shutdown() { s.p.terminate() }

func (s *server) close() {
	if s.p != nil {
		s.p.signal(syscall.SIGCONT)
		s.p.kill()
	}
	_ = s.conn.Close()
}

// fault plays a fault of an embedded server.
func (s *server) fault(ctx context.Context, body string) error {
	return s.ask(ctx, http.MethodPost, body)
}

func (s *server) heal(ctx context.Context) error { return s.ask(ctx, http.MethodDelete, "") }

func (s *server) ask(ctx context.Context, method, body string) error {
	r, err := http.NewRequestWithContext(ctx, method, s.faults, strings.NewReader(body))
	if err != nil {
		return err
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(a.Body) // for people
		return fmt.Errorf("faults: %s %s", a.Status, bytes.TrimSpace(text))
	}
	return nil
}

// served is how many inferences of model it has answered, with an error or without, since it was loaded.
func (s *server) served(ctx context.Context, model string) (uint64, error) {
	a, err := tritonpb.NewGRPCInferenceServiceClient(s.conn).ModelStatistics(ctx, &tritonpb.ModelStatisticsRequest{Name: model})
	if err != nil {
		return 0, err
	}
	var n uint64
	for _, m := range a.ModelStats {
		n += m.GetInferenceStats().GetSuccess().GetCount() + m.GetInferenceStats().GetFail().GetCount()
	}
	return n, nil
}

func (s *server) connect() (err error) {
	s.conn, err = grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quickBackoff, MinConnectTimeout: time.Second}))
	return err
}

// embedded prepares a `gateway sandbox` of its own. addresses: gRPC, faults, and two ports that nobody needs.
func embedded(binary, logs, name string, addresses []string) (*server, error) {
	s := &server{
		name: name, address: addresses[0], faults: "http://" + addresses[1] + "/faults", log: filepath.Join(logs, name+".log"), env: bareEnv(),
		argv:   []string{binary, "sandbox", "--triton", addresses[0], "--faults", addresses[1], "--data", addresses[2], "--admin", addresses[3]},
		models: []string{"fraud", "echo", "echo_fp32", "seqsum"},
	}
	return s, s.connect()
}

// realTriton prepares a Triton that loads these models of the repository.
func realTriton(root, logs, name, backends, repository string, addresses []string, models []string) (*server, error) {
	port := func(a string) string {
		_, p, _ := net.SplitHostPort(a) // our own
		return p
	}
	s := &server{
		name: name, address: addresses[0], http: addresses[1], metrics: addresses[2], log: filepath.Join(logs, name+".log"), models: models,
		env: os.Environ(),
		argv: []string{
			filepath.Join(root, ".cache/rig/venv/bin/python"), filepath.Join(root, "rig/triton.py"),
			"--exec", backends, "--models", repository, "--grpc", port(addresses[0]), "--http", port(addresses[1]), "--metrics", port(addresses[2]), "--",
			"--model-control-mode=explicit", "--strict-readiness=false", "--exit-timeout-secs=20",
			// Its shared memory would be left behind by SIGKILL: it is removed by this name.
			"--backend-config=python,shm-region-prefix-name=" + shmPrefix(name), "--backend-config=onnxruntime,shm-region-prefix-name=" + shmPrefix(name),
		},
	}
	for _, m := range models {
		s.argv = append(s.argv, "--load-model="+m)
	}
	return s, s.connect()
}

func shmPrefix(name string) string { return fmt.Sprintf("chaos-%d-%s-", os.Getpid(), name) }

// forgetSharedMemory removes what killed servers of this run have left in /dev/shm.
func forgetSharedMemory() {
	left, _ := filepath.Glob(fmt.Sprintf("/dev/shm/chaos-%d-*", os.Getpid())) // a pattern that is right
	for _, path := range left {
		_ = os.Remove(path) // best effort: it is gone with the machine
	}
}

// bareEnv is the environment without what would configure a gateway by accident.
func bareEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GATEWAY_") || strings.HasPrefix(v, "TRITON_")
	})
}
