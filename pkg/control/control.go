// Package control answers what is not an inference: questions about the gateway, its models and their state, and the
// RPCs that change servers. Answers speak of models by the names clients know, and list only what clients can reach.
//
// What changes servers is closed unless the configuration opens it, and then goes to every endpoint of one upstream, since
// a model loaded, or memory registered, on one of several replicas would serve some calls and fail others.
package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// Upstream is an upstream as control sees it.
type Upstream interface {
	Name() string
	// Each runs ask on every endpoint at once and gives back what failed, by endpoint.
	Each(ctx context.Context, ask func(ctx context.Context, endpoint string, conn grpc.ClientConnInterface) error) map[string]error
	// Any runs ask on an endpoint that serves a version of a model, as far as is known, and on another one when its
	// fault says that another may do better.
	Any(ctx context.Context, model, version string, ask func(ctx context.Context, endpoint string, conn grpc.ClientConnInterface) error) error
	// Refresh has the state of all models looked at again now, after something has changed it.
	Refresh()
}

// View is what control needs to know of the configuration and catalog; it may change from call to call.
type View interface {
	// Model finds a model by the name clients use.
	Model(ctx context.Context, name string) (*inference.Model, error)
	// Upstreams in the order of the configuration.
	Upstreams() []Upstream
	// NamesOf gives the names under which clients know a model of an upstream; none when they cannot reach it.
	NamesOf(upstream, model string) []string
	// Open reports whether the configuration opens a kind of control.
	Open(kind inference.Kind) bool
	// Ready reports whether the gateway is ready.
	Ready() bool
}

// Access decides what callers may see and control, by the names clients know.
type Access interface {
	Allows(caller *inference.Caller, model string, kind inference.Kind) bool
	// Everything reports whether kind is granted on every model, also on those that have no name here.
	Everything(caller *inference.Caller, kind inference.Kind) bool
	// Refusal is what a caller is told that may not: that a rule is missing, or that there is no such model.
	Refusal(caller *inference.Caller, model string, kind inference.Kind) error
}

// Service answers.
type Service struct {
	View    View
	Access  Access // nil lets everybody see and control everything
	Version string // of the gateway
	// Changed, where set, is told of everything that was sent to change servers, and how it ended: for the record.
	Changed func(c *inference.Call, change Change, err error)
}

// questionTimeout bounds what is asked of model servers; one that is silent holds up nobody for longer. A load may take
// as long as a large model takes.
const (
	questionTimeout = 5 * time.Second
	changeTimeout   = 10 * time.Minute
)

var late = fault.New(fault.UpstreamTimeout, "a model server did not answer within %s; try again, or look at its endpoints", questionTimeout)

// Do answers one RPC of inference.GRPCInferenceService, by its short name.
func (s *Service) Do(ctx context.Context, c *inference.Call, method string, request proto.Message) (proto.Message, error) {
	switch r := request.(type) {
	case *tritonpb.ServerLiveRequest:
		return &tritonpb.ServerLiveResponse{Live: true}, nil
	case *tritonpb.ServerReadyRequest:
		return &tritonpb.ServerReadyResponse{Ready: s.View.Ready()}, nil
	case *tritonpb.ServerMetadataRequest:
		return s.serverMetadata(), nil
	case *tritonpb.ModelReadyRequest:
		return s.modelReady(ctx, c.Caller, r)
	case *tritonpb.ModelMetadataRequest:
		return s.modelMetadata(ctx, c.Caller, r)
	case *tritonpb.ModelConfigRequest:
		return s.modelConfig(ctx, c.Caller, r)
	case *tritonpb.ModelStatisticsRequest:
		return s.statistics(ctx, c.Caller, r)
	case *tritonpb.RepositoryIndexRequest:
		return s.index(ctx, c.Caller, r)
	}
	if !s.View.Open(c.Kind) {
		return nil, fault.New(fault.ControlOff, "%s is closed on this gateway; an operator opens it with control: [%s]", method, c.Kind)
	}
	up, err := s.upstream(c)
	if err != nil {
		return nil, err
	}
	if err := s.mayChange(c.Caller, up, request); err != nil {
		return nil, err
	}
	if err := stays(request); err != nil {
		return nil, err
	}
	answer, err := s.everywhere(ctx, up, method, request)
	if change, ok := changeOf(request); ok && s.Changed != nil {
		change.Method, change.Upstream = method, up.Name()
		s.Changed(c, change, err)
	}
	return answer, err
}

// upstreamHeader names the upstream that control is for.
const upstreamHeader = "x-gateway-upstream"

// upstream gives the one upstream that control is for.
func (s *Service) upstream(c *inference.Call) (Upstream, error) {
	all := s.View.Upstreams()
	names := make([]string, len(all))
	for i, u := range all {
		names[i] = u.Name()
	}
	if named := c.Incoming[upstreamHeader]; len(named) > 0 {
		if i := slices.Index(names, named[0]); i >= 0 {
			return all[i], nil
		}
		return nil, fault.New(fault.InvalidArgument, "%s names no upstream; use one of %s", upstreamHeader, strings.Join(names, ", "))
	}
	if len(all) != 1 {
		return nil, fault.New(fault.InvalidArgument, "name the upstream in the header %s: one of %s", upstreamHeader, strings.Join(names, ", "))
	}
	return all[0], nil
}

// everywhere sends a request to every endpoint of up. It fails naming the endpoints that refused; those that did
// not have done what was asked.
func (s *Service) everywhere(ctx context.Context, up Upstream, method string, request proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	answers := make(chan proto.Message, 1)
	failed := up.Each(ctx, func(ctx context.Context, _ string, conn grpc.ClientConnInterface) error {
		answer := answerTo(request)
		if err := conn.Invoke(ctx, "/inference.GRPCInferenceService/"+method, request, answer); err != nil {
			return err
		}
		select {
		case answers <- answer: // the first one speaks for all
		default:
		}
		return nil
	})
	up.Refresh()
	if len(failed) > 0 {
		return nil, refused(up.Name(), method, failed, len(answers) > 0)
	}
	select {
	case answer := <-answers:
		return answer, nil
	default:
		return nil, fault.New(fault.NoEndpoint, "upstream %q has no endpoint; nothing was done", up.Name())
	}
}

// refused tells who refused. The kind is that of the first refusal in order of address.
func refused(upstream, method string, failed map[string]error, some bool) *fault.Fault {
	var endpoints []string
	for e := range failed {
		endpoints = append(endpoints, e)
	}
	slices.Sort(endpoints)
	texts := make([]string, len(endpoints))
	for i, e := range endpoints {
		texts[i] = fmt.Sprintf("%s: %s", e, fault.Of(failed[e]).Msg)
	}
	rest := ""
	if some {
		rest = " (the other endpoints have done it; ask again once these can)"
	}
	first := fault.Of(failed[endpoints[0]])
	f := fault.Wrap(first.Kind, failed[endpoints[0]], "%s failed on upstream %q at %s%s", method, upstream, strings.Join(texts, "; "), rest)
	f.Verbatim, f.Upstream = first.Verbatim, true
	return f
}

// answerTo makes the empty answer of a request that changes servers.
func answerTo(request proto.Message) proto.Message {
	switch request.(type) {
	case *tritonpb.RepositoryModelLoadRequest:
		return new(tritonpb.RepositoryModelLoadResponse)
	case *tritonpb.RepositoryModelUnloadRequest:
		return new(tritonpb.RepositoryModelUnloadResponse)
	case *tritonpb.SystemSharedMemoryStatusRequest:
		return new(tritonpb.SystemSharedMemoryStatusResponse)
	case *tritonpb.SystemSharedMemoryRegisterRequest:
		return new(tritonpb.SystemSharedMemoryRegisterResponse)
	case *tritonpb.SystemSharedMemoryUnregisterRequest:
		return new(tritonpb.SystemSharedMemoryUnregisterResponse)
	case *tritonpb.CudaSharedMemoryStatusRequest:
		return new(tritonpb.CudaSharedMemoryStatusResponse)
	case *tritonpb.CudaSharedMemoryRegisterRequest:
		return new(tritonpb.CudaSharedMemoryRegisterResponse)
	case *tritonpb.CudaSharedMemoryUnregisterRequest:
		return new(tritonpb.CudaSharedMemoryUnregisterResponse)
	case *tritonpb.TraceSettingRequest:
		return new(tritonpb.TraceSettingResponse)
	}
	return new(tritonpb.LogSettingsResponse)
}
