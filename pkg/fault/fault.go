// Package fault has the one table of everything that can go wrong with a call: what the client is told in gRPC
// and in HTTP, whether trying again may help, and whose failure it is. Stages return faults; the fronts render them.
package fault

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
)

// Fault is a failure of a call. Msg says what is wrong and what to do about it, and is shown to the client.
type Fault struct {
	Kind       Kind
	Msg        string
	RetryAfter time.Duration // a hint; 0 means the kind's own
	Upstream   bool          // an upstream reported it; else the gateway found it
	Unsent     bool          // it never reached a server: there was no connection to send it on
	Cause      error         // for the log only, never shown
	// Quota is set by a limit that refused.
	Quota *Quota
	// Verbatim keeps a code of the upstream that is not the kind's own.
	Verbatim codes.Code
}

// Quota says which bucket refused a call, for QuotaFailure and RateLimit-* headers. It never names another
// caller's or user's bucket.
type Quota struct {
	Limit     string        // the limit's name
	Subject   string        // whose bucket: "model:fraud", "user:ann", "ip:10.0.0.7"
	Burst     float64       // tokens it holds
	Remaining float64       // tokens it has left
	Reset     time.Duration // until it is full again
}

// New makes a fault of kind k.
func New(k Kind, format string, args ...any) *Fault {
	return &Fault{Kind: k, Msg: fmt.Sprintf(format, args...)}
}

// Wrap is New with a cause for the log.
func Wrap(k Kind, cause error, format string, args ...any) *Fault {
	f := New(k, format, args...)
	f.Cause = cause
	return f
}

func (f *Fault) Error() string {
	return f.Kind.Reason() + ": " + f.Msg
}

// Unwrap gives the cause.
func (f *Fault) Unwrap() error { return f.Cause }

// Code is the gRPC code the client gets.
func (f *Fault) Code() codes.Code {
	if f.Verbatim != codes.OK {
		return f.Verbatim
	}
	return f.Kind.Row().GRPC
}

// HTTP is the HTTP status the client gets.
func (f *Fault) HTTP() int { return f.Kind.Row().HTTP }

// Retry is how long a client should wait before it tries again; 0 when trying again is no use.
func (f *Fault) Retry() time.Duration {
	if f.RetryAfter > 0 {
		return f.RetryAfter
	}
	return f.Kind.Row().Retry
}

// Of finds the fault in err. An error that is none is an Internal fault that keeps err for the log;
// the error of an ended context is Cancelled or Deadline.
func Of(err error) *Fault {
	if err == nil {
		return nil
	}
	var f *Fault // lives on the heap, so it is not declared before there is something to find
	if errors.As(err, &f) {
		return f
	}
	return fromContext(err)
}
