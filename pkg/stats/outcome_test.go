package stats

import (
	"context"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/fault"
)

func TestEveryKindOfFaultHasTheRightOutcome(t *testing.T) {
	want := map[fault.Kind]Outcome{
		fault.UpstreamTimeout: Timeout,
		fault.Deadline:        Deadline, fault.Expired: Deadline,
		fault.Cancelled:     Cancelled,
		fault.UpstreamQueue: Overload,
		fault.Internal:      Refused, fault.NoEndpoint: Refused, fault.UpstreamRefused: Refused, fault.CircuitOpen: Refused,
		fault.ShuttingDown: Refused, fault.Overloaded: Refused, fault.Memory: Refused, fault.NotServed: Refused, fault.LimiterDown: Refused, fault.AuthUnavailable: Refused,
	}
	for _, k := range fault.Kinds() {
		got := OutcomeOf(fault.New(k, "x"))
		switch w, listed := want[k]; {
		case listed && got != w:
			t.Errorf("%s counts as %v, want %v", k.Reason(), got, w)
		case !listed && k.Row().Canary && got != Failure:
			t.Errorf("%s counts against a canary and yet is %v", k.Reason(), got)
		case !listed && !k.Row().Canary && got != ClientFault:
			t.Errorf("%s is %v; say in this test what it should be", k.Reason(), got)
		}
	}
	if OutcomeOf(nil) != OK || OutcomeOf(context.Canceled) != Cancelled || OutcomeOf(context.DeadlineExceeded) != Deadline {
		t.Error("no error, or one of a context, is taken for something else")
	}
}

func TestBadIsWhatCanariesAreJudgedBy(t *testing.T) {
	for _, k := range fault.Kinds() {
		if bad := Bad.Has(OutcomeOf(fault.New(k, "x"))); bad != k.Row().Canary {
			t.Errorf("%s: bad %v, the fault table says %v", k.Reason(), bad, k.Row().Canary)
		}
	}
}

func TestOutcomesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range Outcomes() {
		if o.String() == "" || seen[o.String()] {
			t.Errorf("outcome %d has no name of its own", o)
		}
		seen[o.String()] = true
	}
	if Outcome(200).String() != "unknown" {
		t.Error("an outcome that is none has a name")
	}
}
