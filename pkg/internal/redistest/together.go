package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// slots is how many a cluster shares among its masters.
const slots = 16384

// StartCluster starts a Redis Cluster of masters without replicas, and waits until it serves.
func StartCluster(t testing.TB, masters int) []*Server {
	t.Helper()
	binary := Binary(t)
	nodes := make([]*Server, masters)
	for i := range nodes {
		nodes[i] = start(t, binary, "--cluster-enabled", "yes", "--cluster-node-timeout", "60000",
			"--cluster-require-full-coverage", "no")
		command := []string{"CLUSTER", "ADDSLOTS"}
		for slot := slots * i / masters; slot < slots*(i+1)/masters; slot++ {
			command = append(command, strconv.Itoa(slot))
		}
		nodes[i].Do(command...)
		nodes[i].Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for _, node := range nodes[1:] {
		host, port, _ := net.SplitHostPort(node.Addr)
		nodes[0].Do("CLUSTER", "MEET", host, port)
	}
	for _, node := range nodes {
		Eventually(t, func() error {
			info := node.Do("CLUSTER", "INFO")
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d", slots)) {
				return fmt.Errorf("a cluster that is not there yet: %s", info)
			}
			return nil
		})
	}
	return nodes
}

// Sentinels are a master, its replica, and those that watch over them.
type Sentinels struct {
	Name      string // of the master
	Redis     [2]*Server
	Sentinels []*Server
	t         testing.TB
}

// StartSentinels starts a master, a replica, and three sentinels. A busy machine is no reason for them to fail over: they
// do when told to, by FailOver.
func StartSentinels(t testing.TB) *Sentinels {
	t.Helper()
	binary := Binary(t)
	s := &Sentinels{Name: "limits", t: t}
	s.Redis[0] = start(t, binary)
	host, port, _ := net.SplitHostPort(s.Redis[0].Addr)
	s.Redis[1] = start(t, binary)
	s.Redis[1].Do("REPLICAOF", host, port)
	Eventually(t, func() error {
		if info := s.Redis[1].Do("INFO", "replication"); !strings.Contains(info, "master_link_status:up") {
			return fmt.Errorf("a replica that has no copy yet: %s", info)
		}
		return nil
	})
	for range 3 {
		s.Sentinels = append(s.Sentinels, startSentinel(t, binary, s.Name, host, port))
	}
	for _, sentinel := range s.Sentinels {
		Eventually(t, func() error {
			info := sentinel.Do("INFO", "sentinel")
			if !strings.Contains(info, "status=ok") || !strings.Contains(info, "slaves=1,sentinels=3") {
				return fmt.Errorf("sentinels that do not know each other yet: %s", info)
			}
			return nil
		})
	}
	return s
}

func startSentinel(t testing.TB, binary, name, host, port string) *Server {
	t.Helper()
	dir := t.TempDir()
	own := Port(t)
	file := filepath.Join(dir, "sentinel.conf")
	settings := fmt.Sprintf(`port %d
bind 127.0.0.1
dir %s
sentinel monitor %s %s %s 2
sentinel down-after-milliseconds %s 3600000
sentinel failover-timeout %s 3000
`, own, dir, name, host, port, name, name)
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{
		Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(own)), t: t, binary: binary,
		args: []string{file, "--sentinel"},
	}
	s.Restart()
	t.Cleanup(s.Stop)
	return s
}

// FailOver kills the master and returns when every sentinel has said that the replica is the master.
func (s *Sentinels) FailOver() {
	s.t.Helper()
	var switched []*subscription
	for _, sentinel := range s.Sentinels {
		switched = append(switched, subscribe(s.t, sentinel.Addr, "+switch-master"))
	}
	s.Redis[0].Stop()
	for _, sentinel := range s.Sentinels { // now they may notice
		sentinel.Do("SENTINEL", "SET", s.Name, "down-after-milliseconds", "500")
	}
	for _, news := range switched {
		want := s.Name + " " + strings.ReplaceAll(s.Redis[0].Addr+":"+s.Redis[1].Addr, ":", " ")
		if got := news.wait(s.t); got != want {
			s.t.Fatalf("a sentinel has switched to %q, want %q", got, want)
		}
	}
}

// Addrs lists the addresses of the sentinels.
func (s *Sentinels) Addrs() []string { return Addrs(s.Sentinels) }

// Addrs lists the addresses of servers.
func Addrs(servers []*Server) []string {
	addrs := make([]string, len(servers))
	for i, server := range servers {
		addrs[i] = server.Addr
	}
	return addrs
}
