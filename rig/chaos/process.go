package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a program under test, in a process group of its own, with its output in a file.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
}

func launch(name, log string, env, argv []string) (*process, error) {
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return nil, err
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the child has its own
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = out, out, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, log: log, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the code is asked of ProcessState
		close(p.exited)
	}()
	return p, nil
}

// signal sends sig to the program and all it has started, as the end of a container does.
func (p *process) signal(sig syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, sig) // it may be gone
}

// terminate sends SIGTERM to the program alone, as Kubernetes does.
func (p *process) terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }

// kill ends the whole group with SIGKILL, and waits until it is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// stop ends the program in order within patience, else by force, and gives its exit code.
func (p *process) stop(patience time.Duration) int {
	p.terminate()
	select {
	case <-p.exited:
	case <-time.After(patience):
	}
	p.kill()
	return p.cmd.ProcessState.ExitCode()
}

// running reports whether it has not ended.
func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// tail gives the last lines of its output.
func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// await asks until ok, the process ends, or patience does. p may be nil.
func await(ctx context.Context, p *process, patience time.Duration, ok func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var exited chan struct{}
	if p != nil {
		exited = p.exited
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("%s ended before it was ready:\n%s", p.name, p.tail())
		case <-ctx.Done():
			if p != nil {
				return fmt.Errorf("%s was not ready after %v: %w\n%s", p.name, patience, err, p.tail())
			}
			return fmt.Errorf("not so after %v: %w", patience, err)
		case <-tick.C:
		}
	}
}

// Ports of servers are below those that the system gives to whoever connects: a server that comes back finds its port free.
const (
	lowestPort = 22000
	ports      = 10000
)

// given are the ports that have been given away, to servers that may not have begun to listen.
var given sync.Map

// freeAddresses gives n addresses of this machine that nobody listens on.
func freeAddresses(n int) ([]string, error) {
	var addresses []string
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	var err error
	for range 100 * n {
		var l net.Listener
		port := lowestPort + rand.IntN(ports)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		if l, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", port)); err != nil {
			continue
		}
		held = append(held, l)
		if addresses = append(addresses, l.Addr().String()); len(addresses) == n {
			return addresses, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports: %w", n, err)
}

var errNot = errors.New("not so")
