package sandbox

import (
	"testing"

	"google.golang.org/grpc/metadata"
)

func TestHeadersThatThePatternNamesWholeBecomeParameters(t *testing.T) {
	pattern, err := headerPattern("x-request-id|x-test-.*")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{headers: pattern}
	ctx := metadata.NewIncomingContext(t.Context(), metadata.MD{
		"x-request-id": {"first", "last"}, "x-test-a": {"cut\x00here"}, "my-x-request-id": {"no"}, "x-request-id-2": {"no"}, "x-test-none": {},
	})
	got := map[string]any{"x-test-a": "the caller's", "kept": int64(1)}
	s.forwardHeaders(ctx, got)
	want := map[string]any{"x-request-id": "last", "x-test-a": "cut", "kept": int64(1)}
	if len(got) != len(want) {
		t.Fatalf("parameters are %v, want %v", got, want)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %v, want %v", k, got[k], v)
		}
	}
}

func TestWithoutAPatternNoHeaderIsForwarded(t *testing.T) {
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-request-id", "r"))
	got := map[string]any{}
	new(Server).forwardHeaders(ctx, got)
	if len(got) != 0 {
		t.Errorf("parameters are %v, want none", got)
	}
}

func TestABrokenPatternIsRefused(t *testing.T) {
	if _, err := headerPattern("x-("); err == nil {
		t.Error("a pattern that does not compile was taken")
	}
}
