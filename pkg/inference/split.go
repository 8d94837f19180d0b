package inference

// Rule is one rule of a model's split. Rules are tried in the file's order; the first that has an answer decides, and
// when none has, the stable target is taken. Exactly one of To, Script and Weights is set.
//
// Of a model without declared targets, a rule's targets may be missing from the upstream: the rule then has no answer.
type Rule struct {
	// Name is how explain, logs and metrics call the rule, such as "header x-user-type" or "weights".
	Name string
	// Match, where set, is a condition on the call; to a call that does not meet it the rule has no answer.
	Match *Match
	// To is the target of every call that the rule is for.
	To *Target
	// Script is the name of the Lua script that answers, such as "fraud_canary".
	Script string
	// Weights are shares of users, in the file's order. They make up 100.
	Weights []Weight
	Salt    string // of the hash that places a user; other salts place the same users elsewhere
	// SetHeaders are set on metadata toward the upstream for calls that this rule decides, over those of the model.
	SetHeaders map[string]string
}

// Match is a condition on one value of a call. Exactly one of Header, Field, User and Caller is set.
type Match struct {
	Header string            // lower case: of the client's metadata
	Field  string            // a key of the message's own metadata (PredictionRequest.metadata)
	User   bool              // the person the call is for
	Caller bool              // the authenticated client's name
	Holds  func(string) bool // compares; called with each value there is, one that holds is enough
	// Says is the condition in words, such as `is "premium"`.
	Says string
}

// By names what the condition is on, as Choice.By does.
func (m *Match) By() string {
	switch {
	case m.Header != "":
		return ByHeader
	case m.Field != "":
		return ByMetadata
	case m.User:
		return ByUser
	}
	return ByCaller
}

// Meets reports whether c meets the condition.
func (m *Match) Meets(c *Call) bool {
	switch {
	case m.Header != "":
		for _, v := range c.Incoming[m.Header] {
			if m.Holds(v) {
				return true
			}
		}
		return false
	case m.Field != "":
		v, ok := c.Head.Metadata[m.Field]
		return ok && m.Holds(v)
	case m.User:
		return c.User != "" && m.Holds(c.User)
	}
	return c.Caller != nil && m.Holds(c.Caller.Name)
}

// Weight is a target's share.
type Weight struct {
	Target *Target
	Share  float64 // of 100
	Span           // of the hash: its users are those whose hash is inside
}

// Mirror sends a copy of some calls to another target, after the caller has its answer.
type Mirror struct {
	To      *Target
	Percent float64 // of calls, 0 to 100
}

// What may decide on a target; values of Choice.By.
const (
	ByPinned   = "pinned"   // the call names the version itself
	BySequence = "sequence" // the call follows the first of its sequence
	ByHeader   = "header"   // a condition on the client's metadata
	ByMetadata = "metadata" // on the message's own
	ByUser     = "user"
	ByCaller   = "caller"
	ByScript   = "script"
	ByWeights  = "weights"
	ByAlways   = "always"   // a rule without a condition
	ByStable   = "stable"   // no rule had an answer
	ByFallback = "fallback" // the target that the call was for could not answer
)

// Choice is how a call came to its target.
type Choice struct {
	By string // see the constants above
	// Rule is the name of the rule, or of the script; empty without one.
	Rule string
	// Reason is what a script gave as its reason, or why the rules before had no answer; often empty.
	Reason string
	// Bucket is the user's, 0 to 999, by the hash that weights place users with. It means something only where By is
	// ByWeights.
	Bucket uint16
	// SetHeaders are those of the rule that decided.
	SetHeaders map[string]string
}

// Considered is what one rule of a split would say to a call, for people to read.
type Considered struct {
	Rule    string `json:"rule"`             // its name
	By      string `json:"by"`               // as Choice.By
	Target  string `json:"target,omitempty"` // that it answers; "" when it has no answer
	Why     string `json:"why"`
	Decides bool   `json:"decides"` // it is the first that has an answer
}

// DefaultScript is the script of models that may have one by their name and have none.
const DefaultScript = "default"

// IsScriptName reports whether a script can have that name, which is its file's without .lua.
func IsScriptName(name string) bool {
	if name == "" || len(name) > 128 {
		return false
	}
	for i := range len(name) {
		b := name[i]
		if !(b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '-' || b == '_') {
			return false
		}
	}
	return true
}
