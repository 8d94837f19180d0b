package redistest

import (
	"strings"
	"testing"
)

func TestAServerAnswersAndForgetsWhenItStartsAgain(t *testing.T) {
	s := Start(t)
	s.Do("SET", "a", "1")
	s.Stop()
	s.Restart()
	if got := s.Do("GET", "a"); got != "" {
		t.Errorf("a restarted server still has %q", got)
	}
}

func TestAClusterServesEverySlot(t *testing.T) {
	nodes := StartCluster(t, 3)
	if _, err := nodes[0].Try("GET", "bar"); err != nil && !strings.HasPrefix(err.Error(), "MOVED") {
		t.Error(err)
	}
}

func TestSentinelsKnowTheMaster(t *testing.T) {
	s := StartSentinels(t)
	got := s.Sentinels[0].Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name)
	if strings.ReplaceAll(got, "\n", ":") != s.Redis[0].Addr {
		t.Errorf("the master is at %s, want %s", got, s.Redis[0].Addr)
	}
}

func TestSentinelsFailOverWhenTheMasterDies(t *testing.T) {
	s := StartSentinels(t)
	s.FailOver()
	if got := s.Redis[1].Do("ROLE"); !strings.HasPrefix(got, "master") {
		t.Errorf("the replica is %q", got)
	}
}
