// Package inference holds the values that travel through the gateway: the call, the model and target it is for,
// the frames it carries. It does no I/O and starts no goroutines; everything else in pkg speaks in its terms.
package inference

import (
	"crypto/tls"
	"net"
	"net/netip"
	"time"
)

// Protocol is the way a call came in. It is a label on metrics and decides how an answer is rendered.
type Protocol uint8

// The ways in.
const (
	Predict       Protocol = iota // ml.inference.InferenceService/Predict
	PredictStream                 // ml.inference.InferenceService/PredictStream
	KServe                        // inference.GRPCInferenceService, unary
	KServeStream                  // inference.GRPCInferenceService/ModelStreamInfer
	HTTPPredict                   // POST /v1/predict
	HTTPKServe                    // /v2/...
	protocols
)

var protocolNames = [protocols]string{"predict", "predict_stream", "v2_grpc", "v2_grpc_stream", "predict_http", "v2_http"}

func (p Protocol) String() string { return protocolNames[p] }

// Protocols lists all ways in.
func Protocols() []Protocol {
	all := make([]Protocol, protocols)
	for i := range all {
		all[i] = Protocol(i)
	}
	return all
}

// SpeaksPredict reports whether request and answer are messages of ml.inference; else they are KServe's.
func (p Protocol) SpeaksPredict() bool { return p == Predict || p == PredictStream || p == HTTPPredict }

// Kind says what a call wants, the unit in which access is granted.
type Kind uint8

// What a call may want.
const (
	Infer      Kind = iota // a prediction
	Metadata               // what the server and its models are: metadata, config, readiness, statistics, index
	Repository             // load and unload models
	SharedMemory
	Trace
	Log
	Admin // the operators' port
	kinds
)

var kindNames = [kinds]string{"infer", "metadata", "repository", "shm", "trace", "log", "admin"}

func (k Kind) String() string { return kindNames[k] }

// Call is one request message on its way to an answer. A unary request is a call, and so is each message of a
// stream. Fields are grouped by the stage that fills them; a stage reads what stages before it have filled.
// A Call belongs to one goroutine at a time.
type Call struct {
	// The front: what came in.
	Kind     Kind
	Protocol Protocol
	Method   string               // full gRPC method, or the HTTP route
	Start    time.Time            // when the message had been read
	Peer     net.Addr             // remote address; nil when unknown
	TLS      *tls.ConnectionState // of the client's connection; nil without TLS
	Incoming map[string][]string  // the client's metadata, lower-case keys; owned by the call
	Source   Source               // reads the message, see Read; nil once that has been done
	Request  Frame                // PredictionRequest or ModelInferRequest, see Protocol; owned by the call
	Size     int                  // bytes of the message that Source has read
	Head     Head                 // what was read from Request without decoding it
	Stream   *Stream              // set for a message of a client stream
	Opening  bool                 // this call stands for a stream being opened, not for a message
	Turn     Turn                 // keeps the messages of one stream in order; the zero Turn never waits

	// door
	Address netip.Addr // the client's address, behind proxies that are trusted; the zero Addr when unknown

	// identify
	Identity

	// resolve, split
	Model  *Model
	Target *Target
	Pinned bool // the caller named the version itself
	Choice Choice
	Home   *Home // of the call's sequence; nil when there is none, or replicas know nothing together

	// admit
	Priority Priority // the call's own, never above its caller's

	// fallback
	Degraded *Degraded // set when the answer is not the target's
	Reserve  float64   // share of the time for an answer that is kept for the target to be asked next, 0 to 1
	Latest   time.Time // when the target that is asked in another's place must have answered, whoever its caller is; zero when nothing says so

	// deadline
	Deadline time.Time // when the upstream must have answered; zero when nothing limits it

	// inject
	Outgoing map[string][]string // metadata for the upstream

	// forward and the upstream
	Endpoint   string // the endpoint that was tried last, for logs and answers
	Attempts   int
	Decoupled  bool                // the model may answer any number of times; set by MarkDecoupled
	UpstreamIn time.Duration       // time spent waiting for the upstream, all attempts
	SendIn     time.Duration       // time spent handing over answers of a stream: they wait for those before them, and for the client
	Header     map[string][]string // what the upstream sent before its answer
	Trailer    map[string][]string // and after it
	Rewritten  *Target             // the target that Request has been rewritten for; nil while it is as it came

	// The answer. Sink takes each answer as it comes, and the Frame with it; without a Sink the last answer
	// stays in Answer, owned by the call.
	Sink    func(Frame) error
	Answer  Frame
	Answers int
	// AnswerType is the datatype of the output whose bytes are a PredictionResponse's output_tensor; empty when unknown.
	AnswerType string
	// InBand is the fault of an answer that is itself an error report (a stream's error_message):
	// sent as it came, and yet counted as the failure it is.
	InBand error

	// OnDecoupled, where set, is told as soon as the model is known to be decoupled, before any answer.
	OnDecoupled func()
}

// MarkDecoupled notes that the model of c may answer any number of times.
func (c *Call) MarkDecoupled() {
	if !c.Decoupled {
		c.Decoupled = true
		if c.OnDecoupled != nil {
			c.OnDecoupled()
		}
	}
}

// Source reads the message of a call from its client.
type Source interface {
	// Read fills Request, Head and Start of c. Its error is a fault.
	Read(c *Call) error
}

// Read has the message read where that has not been done yet. It is done late, once the sender is known to be somebody
// who may send it: a stranger must not make the gateway hold what it sends.
func (c *Call) Read() error {
	source := c.Source
	if source == nil {
		return nil
	}
	c.Source = nil
	err := source.Read(c)
	c.Size = c.Request.Len()
	return err
}

// Identity is who asks, and under which names this request is known.
type Identity struct {
	RequestID   string
	TraceID     string // 32 hex digits, or whatever the caller uses
	TraceParent string // W3C trace context, when the caller sent a valid one
	TraceState  string
	Sampled     bool    // the caller's trace context says so
	Caller      *Caller // the authenticated client; nil when nobody was authenticated
	User        string  // the person the call is made for; empty when unknown
	OwnUser     bool    // User is the caller itself, for want of a person; somebody may have the same name
}

// Head is what the front reads from a request without decoding it.
type Head struct {
	Model      string // model_name as sent
	Version    string // as sent; "" when the caller leaves the choice to us
	ID         string // the message's own id (KServe)
	Sequence   Sequence
	EmptyFinal bool // the caller asked for an empty final answer (triton_enable_empty_final_response)

	// Rows of the first input of a ModelInferRequest, its shape's first dimension; 0 when it has none.
	Rows int64

	// Of a PredictionRequest: where input_tensor's bytes are in the frame, and metadata.
	TensorOff, TensorLen int
	Metadata             map[string]string
}

// Sequence ties calls together that must meet the same state. ID is "" for a call on its own.
type Sequence struct {
	ID         string // decimal digits when the caller sent a number
	Start, End bool
}

// Send hands one answer over; the Frame belongs to the receiver from here on, whatever is returned.
// An error means that the client is gone.
func (c *Call) Send(answer Frame) error {
	c.Answers++
	if c.Sink != nil {
		begin := time.Now()
		err := c.Sink(answer)
		c.SendIn += time.Since(begin)
		return err
	}
	c.Answer.Free()
	c.Answer = answer
	return nil
}

// Free gives back the frames that the call still holds.
func (c *Call) Free() {
	c.Request.Free()
	c.Answer.Free()
}
