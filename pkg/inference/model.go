package inference

import (
	"context"
	"time"
)

// Model is a name that clients may ask for, and what the gateway does with calls to it.
// A Model is immutable once it is in a snapshot; what changes while it serves lives behind its targets' pools.
type Model struct {
	Name string
	// Route is set for a model that the configuration declares; else it passes through under its own name.
	Route bool
	// Targets by name, and in order of version where targets are implicit.
	Targets map[string]*Target
	// Stable is the target of calls that nothing sends elsewhere. For a model without declared targets it is
	// nil, and Choose tells instead, since its versions come and go.
	Stable *Target
	// Choose gives the target of an unpinned call to a model without declared targets that nothing sends elsewhere. Where
	// rules or a script split its calls that is the lowest version, else the highest. While nothing is known of its
	// versions it asks the upstream, for as long as ctx lets it.
	Choose func(ctx context.Context) (*Target, error)
	// Current is what Choose would give by what is known, without asking: nil when nothing is. It is set where
	// Choose is.
	Current func() *Target
	// Named gives a target by its name, by what is known, without asking: nil when there is none of that name. Of a model
	// without declared targets, model_v<N> is one while some endpoint that is up lists version N and has it not unloaded.
	Named func(name string) *Target
	// Pin gives the target of a call that names its version, or a fault. It may ask an upstream about a
	// version it has not heard of.
	Pin func(ctx context.Context, version string) (*Target, error)
	// Timeouts of its calls.
	Timeouts Timeouts
	// What happens when targets fail or there is not room for all. The zero Breaker never opens.
	Breaker     Breaker
	Retry       Retry
	Concurrency Concurrency
	Fallback    *Fallback // nil: the error itself
	// Pick is how one of a target's endpoints is chosen.
	Pick Pick
	// PassPriority hands the caller's priority to the upstream.
	PassPriority bool
	// Tensors of Predict as declared; nil means that the upstream's metadata tells.
	Tensors *Tensors
	// Limits that are per this model, in the file's order.
	Limits []*Limit
	// Split chooses the target of calls that do not pin a version: rules in the file's order. When there is none, or
	// none has an answer, the call goes to Stable.
	Split []Rule
	// Scripted says that the script of the model's own name, else the one named default, splits its calls where there is
	// one. It is set for models that have neither declared targets nor a split, and whose names scripts can have.
	Scripted bool
	// Mirror is where copies of calls go; nil when nowhere.
	Mirror *Mirror
	// SetHeaders are set on metadata toward the upstream; "{target}" in a value stands for the target's name.
	SetHeaders map[string]string
}

// Timeouts bound a call's time upstream.
type Timeouts struct {
	Max         time.Duration // of a unary call; the only cap
	FirstAnswer time.Duration // of a message in a stream, until its first answer
	Idle        time.Duration // of a message in a stream, between answers
	Dynamic     Dynamic       // shortens Max to what the target lately needs; the zero Dynamic does not
}

// Target is where a call can go: one version of a model on one upstream.
type Target struct {
	Name     string // as scripts, weights and metrics call it
	Model    string // the model's name on the upstream
	Version  string // the version there; "" when the upstream has no versions
	Upstream string // name of the upstream
	Asked    string // the model's name as clients know it, for labels
	Pool     Pool
	// Absent is set for what stands in the place of a target that nobody can name while no upstream answers: the fault
	// that calls to it end with, unless there is a fallback. Its Name is "".
	Absent error
}

// Nowhere is what stands in the place of a target of the model that clients know as asked: "" when it is not known
// whether there is one of that name. Why is the fault that says so.
func Nowhere(asked string, why error) *Target {
	return &Target{Asked: asked, Pool: nowhere{why}, Absent: why}
}

type nowhere struct{ why error }

func (n nowhere) Pick(*Call, []Endpoint) (Endpoint, error) { return nil, n.why }
func (n nowhere) Ready() bool                              { return false }

// Pool is the part of an upstream that can serve one target. Its state outlives reloads of the configuration.
type Pool interface {
	// Pick chooses an endpoint for c, other than those in not. It returns a fault when there is none.
	Pick(c *Call, not []Endpoint) (Endpoint, error)
	// Ready reports whether any endpoint can serve the target now.
	Ready() bool
}

// Roomy is a Pool whose endpoints may have room for so many calls only.
type Roomy interface {
	// Room says how many calls each endpoint takes at once, 0 for any number; how many endpoints can serve the target; and
	// how many of them take no more now.
	Room() (limit, endpoints, full int)
}

// Describer is a Pool that knows its target's tensors.
type Describer interface {
	// Tensors gives what is known of them, over outages too, and waits for nobody; empty when nothing is. It sees to it
	// that more is known soon.
	Tensors() Tensors
}

// Endpoint is one address of an upstream, seen by one target. Endpoints are comparable.
type Endpoint interface {
	// Name is the address, host:port.
	Name() string
	// Infer sends c, hands each answer to c.Send, and returns when c has been answered for good.
	// For a message of a stream (c.Stream) it waits for c.Turn before it sends, and gives the turn on.
	// One that has no room left for c refuses it with a fault Overloaded of the gateway's own, and has done nothing then: it
	// was no attempt, and Pick may know of another.
	Infer(ctx context.Context, c *Call) error
}

// Tensors says how the flat bytes of a PredictionRequest become tensors and which output answers it.
type Tensors struct {
	Inputs     []Tensor
	Outputs    []Tensor // what is known of them; empty where nothing is
	Output     string   // name of the output that becomes output_tensor; "" is the first floating-point one
	Confidence Confidence
}

// Tensor is a tensor's name, KServe datatype and shape with the batch first; -1 may be any size.
type Tensor struct {
	Name     string
	Datatype string
	Shape    []int64
}

// Confidence says how confidence is computed from an output.
type Confidence struct {
	Output string // "" is Tensors.Output
	Reduce string // first | max | mean over row 0; "" is first for one element a row, else max
}
