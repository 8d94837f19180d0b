package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/sandbox"
	tritonmodels "github.com/model-gateway/model-gateway/triton-models"
)

// running is a gateway serve in a process of its own.
type running struct {
	cmd  *exec.Cmd
	log  *bufio.Scanner
	data string
}

// startServe starts the real binary, which is this test's own, on a configuration file, and waits until it is ready.
func startServe(t *testing.T, file string) *running {
	t.Helper()
	return start(t, "serve", "--config", file)
}

// start runs a command that serves in a process of its own.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Args[0] = "gateway" // testscript runs the command of that name
	cmd.Env = append(os.Environ(), "GATEWAY_DATA=127.0.0.1:0", "GATEWAY_ADMIN=off", "GATEWAY_DRAIN_BEFORE=0s")
	cmd.Path = filepath.Join(t.TempDir(), "gateway")
	if err := os.Symlink(exe, cmd.Path); err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	r := &running{cmd: cmd, log: bufio.NewScanner(pipe)}
	r.data, _ = r.await(t, "serving")["data"].(string)
	r.await(t, "ready")
	return r
}

// await reads the log up to a message. A process that does not come to say it is ended, so that the test fails with what
// it did say, rather than wait for ever.
func (r *running) await(t *testing.T, msg string) map[string]any {
	t.Helper()
	patience := time.AfterFunc(2*time.Minute, func() { _ = r.cmd.Process.Kill() })
	defer patience.Stop()
	var said []string
	for r.log.Scan() {
		said = append(said, r.log.Text())
		var line map[string]any
		if err := json.Unmarshal(r.log.Bytes(), &line); err != nil {
			t.Fatalf("a line of the log is no JSON: %s", r.log.Text())
		}
		if line["msg"] == msg {
			return line
		}
	}
	t.Fatalf("the log ended before it said %q; after the line waited for before, it said:\n%s", msg, strings.Join(said, "\n"))
	return nil
}

// version is which version of fraud answers.
func (r *running) version(t *testing.T) string {
	t.Helper()
	a, err := http.Post("http://"+r.data+"/v2/models/fraud/infer", "application/json",
		strings.NewReader(`{"inputs":[{"name":"INPUT","datatype":"FP32","shape":[1,16],"data":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	body, _ := io.ReadAll(a.Body)
	var answer struct {
		Version string `json:"model_version"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || a.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", a.Status, body)
	}
	return answer.Version
}

func (r *running) metrics(t *testing.T) string {
	t.Helper()
	a, err := http.Get("http://" + r.data + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// replace writes a file such that no reader ever finds half of it.
func replace(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func TestServeFollowsItsFileAndSignalsAndEndsCleanly(t *testing.T) {
	models, err := sandbox.New(sandbox.Options{Models: tritonmodels.FS, Load: []string{"fraud"}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = models.Serve(l) }()
	t.Cleanup(models.Stop)

	file := filepath.Join(t.TempDir(), "gateway.yaml")
	write := func(stable string) {
		t.Helper()
		text := fmt.Sprintf("version: 1\nupstreams: {triton: {kind: triton, endpoints: \"%s\"}}\nmodels: [{name: fraud, targets: {model_v1: {version: 1}, model_v2: {version: 2}}, stable: %s}]\n", l.Addr(), stable)
		replace(t, file, text)
	}
	write("model_v1")
	r := startServe(t, file)
	if v := r.version(t); v != "1" {
		t.Errorf("version %s answers, want 1", v)
	}

	write("model_v2")
	r.await(t, "the configuration was read again and is in force")
	if v := r.version(t); v != "2" {
		t.Errorf("after the file changed, version %s answers, want 2", v)
	}

	write("model_v3")
	if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	r.await(t, "the configuration was read again and cannot be served; the one before stays in force")
	r.await(t, "audit") // comes after the refusal has been counted
	if m := r.metrics(t); !strings.Contains(m, "gateway_config_last_reload_successful 0\n") {
		t.Error("the refusal shows in no metric")
	}
	if v := r.version(t); v != "2" {
		t.Errorf("after a file with a mistake, version %s answers, want 2", v)
	}

	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.await(t, "drained")
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM it ended with %v", err)
	}
}

// freeAddress is one that nobody listens on, below those that the system gives to whoever connects: it stays free.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 22000+rand.IntN(10000)))
		if err != nil {
			continue
		}
		defer func() { _ = l.Close() }()
		return l.Addr().String()
	}
	t.Fatal("there is no free port")
	return ""
}

func TestTheSandboxFollowsItsFile(t *testing.T) {
	triton := freeAddress(t)
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	write := func(stable string) {
		t.Helper()
		text := fmt.Sprintf("version: 1\nupstreams: {triton: {kind: triton, endpoints: \"%s\"}}\nmodels: [{name: fraud, targets: {model_v1: {version: 1}, model_v2: {version: 2}}, stable: %s}]\n", triton, stable)
		replace(t, file, text)
	}
	write("model_v1")
	r := start(t, "sandbox", "--config", file, "--data", "127.0.0.1:0", "--admin", "off", "--faults", "off", "--triton", triton, "--log", "info")
	if v := r.version(t); v != "1" {
		t.Errorf("version %s answers, want 1", v)
	}
	write("model_v2")
	if who := r.await(t, "audit")["who"]; who != "file" {
		t.Errorf("%v changed it", who)
	}
	if v := r.version(t); v != "2" {
		t.Errorf("after the file changed, version %s answers, want 2", v)
	}
}
