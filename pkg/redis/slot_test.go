package redis

import (
	"strconv"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

func TestAllBucketsOfAModelAreInOneSlotAndItIsTheOneRedisMeans(t *testing.T) {
	s := redistest.Start(t, "--cluster-enabled", "yes")
	c, err := Open(Options{Addresses: []string{s.Addr}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	spread := map[int]bool{}
	for _, model := range []string{"fraud", "a", "}", "{}", "m{x}y", "\x00\xff", "médoc", "with space", "", string(make([]byte, 300))} {
		var first int
		for i, name := range []string{
			limit.ModelBase(model, "per-model").Key(), limit.ModelBase(model, "per-user").For("ann"),
			limit.ModelBase(model, "per-user").For("{b}ob"), limit.ModelBase(model, "li}mit").For("::1"),
		} {
			key := c.Key(name)
			got := c.slot(name)
			if want, _ := strconv.Atoi(s.Do("CLUSTER", "KEYSLOT", key)); got != want {
				t.Errorf("%q: slot %d, Redis says %d", key, got, want)
			}
			if i == 0 {
				first = got
			} else if got != first && model != "" { // an empty tag is none; no model has an empty name
				t.Errorf("%q: slot %d, the model's first bucket is in %d", key, got, first)
			}
		}
	}
	for i := range 200 {
		name := limit.SpanningBase("per-ip").For("192.0.2." + strconv.Itoa(i))
		if want, _ := strconv.Atoi(s.Do("CLUSTER", "KEYSLOT", c.Key(name))); c.slot(name) != want {
			t.Errorf("%q: slot %d, Redis says %d", name, c.slot(name), want)
		}
		spread[c.slot(name)] = true
	}
	if len(spread) < 150 {
		t.Errorf("200 addresses share %d slots", len(spread))
	}
}
