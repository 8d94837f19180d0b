package triton

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
)

// nameServer is a DNS server that knows one name.
type nameServer struct {
	conn net.PacketConn

	mu        sync.Mutex
	addresses []string
	asked     map[string]bool // names
}

func newNameServer(t *testing.T, addresses ...string) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn, addresses: addresses, asked: map[string]bool{}}
	var served sync.WaitGroup
	served.Go(s.serve)
	t.Cleanup(func() { _ = conn.Close(); served.Wait() })
	return s
}

func (s *nameServer) point(addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses = addresses
}

func (s *nameServer) serve() {
	packet := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(packet)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(packet[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		m.Header = dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true}
		m.Additionals = nil
		s.mu.Lock()
		s.asked[q.Name.String()] = true
		if q.Name.String() != "models.test." {
			m.RCode = dnsmessage.RCodeNameError
		} else if q.Type == dnsmessage.TypeA {
			for _, a := range s.addresses {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: [4]byte(net.ParseIP(a).To4())},
				})
			}
		}
		s.mu.Unlock()
		if b, err := m.Pack(); err == nil {
			_, _ = s.conn.WriteTo(b, from)
		}
	}
}

// ask sends a call, and again where the endpoint that was chosen was taken out just then, as the stage forward does.
func ask(t *testing.T, u *Upstream) {
	err := infer(t.Context(), kserve(t, u, request("risk")))
	if err != nil && strings.Contains(err.Error(), "has been taken out") {
		err = infer(t.Context(), kserve(t, u, request("risk")))
	}
	if err != nil {
		t.Error(err)
	}
}

// TestAddressesThatComeAndGoInTheDNSHurtNoCall asks a DNS server of its own, as an address with a server's name does.
func TestAddressesThatComeAndGoInTheDNSHurtNoCall(t *testing.T) {
	names := newNameServer(t, "192.0.2.1")
	servers := tritontest.Network{"192.0.2.1:8001": {}, "192.0.2.2:8001": {}}
	u := upstream(t, servers, func(o *Options) {
		o.Endpoints = []string{"dns://" + names.conn.LocalAddr().String() + "/models.test:8001"}
	})
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 3 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ask(t, u)
			}
		})
	}
	become := func(want ...string) {
		t.Helper()
		for until := time.Now().Add(patience); !slices.Equal(u.Endpoints(), want); {
			if time.Now().After(until) {
				t.Fatalf("the endpoints are %v, want %v", u.Endpoints(), want)
			}
			u.lookAgain()
			ask(t, u)
		}
	}
	become("192.0.2.1:8001")
	names.point("192.0.2.1", "192.0.2.2")
	become("192.0.2.1:8001", "192.0.2.2:8001")
	for until := time.Now().Add(patience); servers["192.0.2.2:8001"].Calls.Load() == 0; {
		if time.Now().After(until) {
			t.Fatal("the new address gets no calls")
		}
		ask(t, u)
	}
	names.point("192.0.2.2")
	become("192.0.2.2:8001")
	close(stop)
	load.Wait()
	before := servers["192.0.2.1:8001"].Calls.Load()
	names.point() // an answer without addresses is none
	for range 100 {
		ask(t, u)
	}
	if n := servers["192.0.2.1:8001"].Calls.Load() - before; n != 0 {
		t.Errorf("the address that is gone had %d calls", n)
	}
	if s := u.opts.Resolver.String(); !strings.HasSuffix(s, "/models.test:8001") || u.opts.serverName() != "" {
		t.Errorf("it is called %s, and its name for TLS is %q", s, u.opts.serverName())
	}
}
