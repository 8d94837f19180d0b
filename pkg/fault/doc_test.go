package fault_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/fault"
)

var update = flag.Bool("update", false, "write docs/errors.md")

const (
	page  = "../../docs/errors.md"
	begin = "<!-- the table: make with `go test ./pkg/fault -update` -->\n"
	end   = "<!-- end -->\n"
)

func table() string {
	var b strings.Builder
	b.WriteString("\n| reason | gRPC | HTTP | try again | fallback on |\n|---|---|---|---|---|\n")
	var lines []string
	for _, k := range fault.Kinds() {
		r := k.Row()
		again := "no"
		if r.Retry > 0 {
			again = "after " + r.Retry.String()
		}
		fallback := "no"
		switch {
		case r.Outage:
			fallback = "outage"
		case r.Overload:
			fallback = "overload"
		}
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %d | %s | %s |\n", r.Reason, r.GRPC, r.HTTP, again, fallback))
	}
	slices.Sort(lines)
	b.WriteString(strings.Join(slices.Compact(lines), "") + "\n")
	return b.String()
}

func TestTheDocumentedTableOfErrorsIsTheOneInForce(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	want := head + begin + table() + end + tail
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s is out of date; run go test ./pkg/fault -update", page)
	}
}

func TestEveryKindHasAReasonACodeAndAStatusThatFit(t *testing.T) {
	for _, k := range fault.Kinds() {
		r := k.Row()
		if r.Reason == "" || r.GRPC == 0 || r.HTTP < 400 || strings.ToUpper(r.Reason) != r.Reason {
			t.Errorf("kind %d: %+v", k, r)
		}
		if r.HTTP < 500 && (r.Breaker || r.Canary) {
			t.Errorf("%s is the client's and counts against the target", r.Reason)
		}
	}
}

func TestAnErrorThatIsNoFaultIsInternalAndHidesItsText(t *testing.T) {
	f := fault.Of(os.ErrPermission)
	if f.Kind != fault.Internal || strings.Contains(f.Msg, "permission") || f.Unwrap() != os.ErrPermission { //nolint:errorlint // the very same
		t.Errorf("got %+v", f)
	}
}
