package inference

// Caller is an authenticated client. It is immutable.
type Caller struct {
	Name string
	// MayNameUsers lets it say which person a call is for; else the user is the caller itself.
	MayNameUsers bool
	Priority     Priority
	// Roles that its credential carries; access rules may name them.
	Roles []string
}

// Priority orders calls when there is not room for all.
type Priority uint8

// The priorities.
const (
	PriorityDefault Priority = iota
	PriorityCritical
	PrioritySheddable
)

func (p Priority) String() string { return [...]string{"default", "critical", "sheddable"}[p] }

// CallerName is the name of the authenticated client, "" when nobody was authenticated.
func (id Identity) CallerName() string {
	if id.Caller == nil {
		return ""
	}
	return id.Caller.Name
}
