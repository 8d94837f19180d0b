package inference

// Rule is one rule of a model's split. Rules are tried in the file's order; the first that has an answer decides, and
// when none has, the stable target is taken. Exactly one of Match, Script and Weights is set, or none of them: then the
// rule sends every call to To.
type Rule struct {
	// Name is how explain, logs and metrics call the rule, such as "header x-user-type" or "weights".
	Name string
	// Match is a condition on metadata; a call that meets it goes to To.
	Match *Match
	To    *Target
	// Script is the name of the Lua script that answers, such as "fraud_canary".
	Script string
	// Weights are shares of users, in the file's order; nothing is left over, so such a rule always answers.
	Weights []Weight
	Salt    string // of the hash that places a user; other salts place the same users elsewhere
}

// Match is a condition on one value of a call's metadata. Exactly one of Header and Field is set.
type Match struct {
	Header string            // lower case: of the client's metadata
	Field  string            // or a key of the message's own metadata (PredictionRequest.metadata)
	Holds  func(string) bool // compares; called with each value there is, one that holds is enough
}

// Weight is a target's share.
type Weight struct {
	Target *Target
	Share  float64 // of 100
}

// Mirror sends a copy of some calls to another target, after the caller has its answer.
type Mirror struct {
	To      *Target
	Percent float64 // of calls, 0 to 100
}

// Choice is how a call came to its target.
type Choice struct {
	// By is what decided: "pinned", "header", "script", "weights", "always" or "stable"; "sequence" for a call that
	// follows the first of its sequence.
	By string
	// Rule is the name of the rule, or of the script; empty without one.
	Rule string
	// Reason is what a script gave as its reason, or why the rules before had no answer; often empty.
	Reason string
}
