package main

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/model-gateway/model-gateway/pkg/admin"
	"github.com/model-gateway/model-gateway/pkg/explain"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// explained is a gateway's admin port that has one answer for each model.
type explained struct{}

func (explained) Ready() bool                    { return true }
func (explained) Stages() []string               { return nil }
func (explained) Catalog() []admin.Model         { return nil }
func (explained) Endpoints() []admin.Endpoint    { return nil }
func (explained) Config() ([]byte, string)       { return nil, "" }
func (explained) Reload() error                  { return nil }
func (explained) ByKey(string) *inference.Caller { return nil }

func (explained) Allows(*inference.Caller, string, inference.Kind) bool { return true }

func (explained) Authenticate(context.Context, *inference.Call) (*inference.Caller, string, error) {
	return nil, "", fault.New(fault.AuthMissing, "send a key as x-api-key")
}

func (explained) Explain(_ context.Context, q explain.Question) (*explain.Report, error) {
	if q.Caller == "bob" {
		return nil, fault.New(fault.InvalidArgument, "no caller %q is declared; use a name from callers, or none", q.Caller)
	}
	left := 12.0
	r := &explain.Report{
		Question: q, Config: "cafe", Served: true,
		Access:  explain.Access{Verdict: explain.Allowed, Why: "auth is none: callers are not told apart"},
		User:    explain.User{Name: q.User, Why: "as the call names it"},
		Target:  &explain.Target{Name: "model_v1", Version: "1", Upstream: "triton", Model: q.Model, Ready: true, Why: "it is the model's stable target"},
		Limits:  []explain.Limit{{Name: "fraud-1", Per: "user", Subject: q.User, Rate: 20, Burst: 40, Cost: "rows", Mode: "enforce", Draw: "auto", Left: &left}},
		Timeout: &explain.Timeout{Max: explain.Duration(time.Minute), Why: "defaults.timeout"},
	}
	if q.Model == "nobody" {
		r.Served, r.Target, r.Limits, r.Timeout = false, nil, nil, nil
		r.Refusal = &explain.Refusal{Stage: "resolve", Reason: "MODEL_NOT_FOUND", Code: "NotFound", HTTP: 404, Message: "model \"nobody\" is not known here"}
	}
	return r, nil
}

// listen serves an admin port and gives its URL.
func listen(e *testscript.Env, loopback bool) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := admin.Server(admin.Options{
		Gateway: explained{}, Metrics: http.NotFoundHandler(), Loopback: loopback, Callers: explained{}, Access: explained{}, Explainer: explained{},
	})
	go func() { _ = server.Serve(l) }()
	e.Defer(func() { _ = server.Close() })
	return l.Addr().String(), nil
}

// Each script in testdata/explain asks the admin port of a gateway at $ADMIN; $STRICT takes credentials, at $NOBODY none is.
func TestExplainScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/explain", UpdateScripts: *update, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			open, err := listen(e, true)
			if err != nil {
				return err
			}
			strict, err := listen(e, false)
			if err != nil {
				return err
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			e.Setenv("ADMIN", open)
			e.Setenv("STRICT", strict)
			e.Setenv("NOBODY", l.Addr().String())
			return l.Close()
		},
	})
}
