package inference

// Limit is a rule that bounds how much may be asked for: a token bucket for each of whatever it is per. It is
// immutable.
type Limit struct {
	Name      string // unique in a configuration; what metrics and refusals call it
	Per       Per
	Rate      Rate
	Cost      Cost
	Mode      Mode
	Draw      Draw
	WhenDown  WhenDown
	Overrides map[string]Rate // of single users or callers, by name
}

// Rate is how fast a bucket fills and how much it holds.
type Rate struct {
	PerSecond float64 // tokens
	Burst     float64 // tokens; at least 1
}

// Per says what a limit has buckets for.
type Per uint8

// What a limit may be per. Buckets of the first three belong to one model and are drawn together, all or nothing;
// the others span models and are leased.
const (
	PerModel       Per = iota // one bucket for the model
	PerUser                   // one for each user on the model; callers without a user share "anonymous"
	PerModelCaller            // one for each caller on the model
	PerIP                     // one for each client address, whatever it calls
	PerCaller                 // one for each caller, whatever it calls
	PerGlobal                 // one for everything
)

// Spans reports whether the buckets are shared by all models.
func (p Per) Spans() bool { return p >= PerIP }

func (p Per) String() string {
	return [...]string{"model", "user", "model_caller", "ip", "caller", "global"}[p]
}

// Cost says how many tokens a call takes.
type Cost uint8

// What a call may cost.
const (
	CostOne  Cost = iota // one token
	CostRows             // one for each row of its first input
	CostKiB              // one for each KiB of its message, begun ones included
)

func (c Cost) String() string { return [...]string{"1", "rows", "KiB"}[c] }

// Mode says what happens to a call that a bucket cannot pay for.
type Mode uint8

// The modes.
const (
	Enforce Mode = iota // it is refused
	Shadow              // it is counted and let through
	Off                 // nothing is counted
)

func (m Mode) String() string { return [...]string{"enforce", "shadow", "off"}[m] }

// Draw says where tokens come from.
type Draw uint8

// The ways to draw.
const (
	DrawAuto  Draw = iota // leased while the bucket is hot, else exact
	DrawExact             // from the shared bucket, call by call
	DrawLease             // from what this replica has leased
)

func (d Draw) String() string { return [...]string{"auto", "exact", "lease"}[d] }

// WhenDown says what decides while the shared store does not answer.
type WhenDown uint8

// What may decide.
const (
	DownLocal  WhenDown = iota // this replica's share of the rate
	DownOpen                   // nothing: calls pass
	DownClosed                 // nothing: calls are refused
)

func (w WhenDown) String() string { return [...]string{"local", "open", "closed"}[w] }

// Anonymous is the user whose bucket calls without a user share.
const Anonymous = "anonymous"
