package split

import (
	"context"
	"errors"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

func model() *inference.Model {
	stable, second := &inference.Target{Name: "model_v1", Version: "1"}, &inference.Target{Name: "model_v2", Version: "2"}
	return &inference.Model{
		Name: "fraud", Stable: stable,
		Pin: func(_ context.Context, version string) (*inference.Target, error) {
			if version == "2" {
				return second, nil
			}
			return nil, fault.New(fault.ModelNotFound, "no version %s", version)
		},
	}
}

func splitTo(t *testing.T, version string) (*inference.Call, error) {
	t.Helper()
	c := &inference.Call{Model: model(), Head: inference.Head{Version: version}}
	return c, new(Stage).Wrap(func(context.Context, *inference.Call) error { return nil })(t.Context(), c)
}

func TestNoVersionAndZeroMeanTheDefaultAndWordsMeanNothing(t *testing.T) { // O-15
	for version, want := range map[string]struct {
		target string
		kind   fault.Kind
	}{
		"": {target: "model_v1"}, "0": {target: "model_v1"}, "00": {target: "model_v1"}, "2": {target: "model_v2"}, "02": {target: "model_v2"},
		"-1": {kind: fault.BadVersion}, "latest": {kind: fault.BadVersion}, "+2": {kind: fault.BadVersion}, "2.0": {kind: fault.BadVersion},
		"99999999999999999999": {kind: fault.BadVersion}, "9": {kind: fault.ModelNotFound},
	} {
		c, err := splitTo(t, version)
		switch {
		case want.target != "" && (err != nil || c.Target.Name != want.target):
			t.Errorf("version %q: target %v, error %v; want %s", version, c.Target, err, want.target)
		case want.target == "" && (err == nil || fault.Of(err).Kind != want.kind):
			t.Errorf("version %q: %v; want %s", version, err, want.kind.Reason())
		}
	}
}

func TestAPinnedCallSaysThatItIsPinned(t *testing.T) {
	pinned, _ := splitTo(t, "2")
	free, _ := splitTo(t, "")
	if !pinned.Pinned || free.Pinned {
		t.Errorf("pinned: %v, unpinned: %v", pinned.Pinned, free.Pinned)
	}
}

func TestAModelWithoutAnyVersionIsRefusedWithItsOwnFault(t *testing.T) {
	none := fault.New(fault.ModelNotReady, "nothing ready")
	c := &inference.Call{Model: &inference.Model{Choose: func(context.Context) (*inference.Target, error) { return nil, none }}}
	err := new(Stage).Wrap(func(context.Context, *inference.Call) error { t.Error("it was sent on"); return nil })(t.Context(), c)
	if !errors.Is(err, none) {
		t.Errorf("got %v", err)
	}
}
