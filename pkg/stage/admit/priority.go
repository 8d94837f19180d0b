package admit

import "github.com/model-gateway/model-gateway/pkg/inference"

// Where a client says what priority a call has.
const (
	priorityHeader   = "x-priority"
	priorityMetadata = "priority" // in the metadata of a PredictionRequest, which goes before the header
)

// rank orders priorities: what is lower goes first.
var rank = [...]uint8{inference.PriorityCritical: 0, inference.PriorityDefault: 1, inference.PrioritySheddable: 2}

const ranks = 3

// priorityOf is the priority of a call: what the client says of it, and never above its caller's, which is the default where
// nobody says who they are. A word that is no priority says nothing.
func priorityOf(c *inference.Call) inference.Priority {
	most := inference.PriorityDefault
	if c.Caller != nil {
		most = c.Caller.Priority
	}
	said, ok := parse(c.Head.Metadata[priorityMetadata])
	if !ok {
		if values := c.Incoming[priorityHeader]; len(values) > 0 {
			said, ok = parse(values[0])
		}
	}
	if ok && rank[said] > rank[most] {
		return said
	}
	return most
}

func parse(word string) (inference.Priority, bool) {
	switch word {
	case "critical":
		return inference.PriorityCritical, true
	case "default":
		return inference.PriorityDefault, true
	case "sheddable":
		return inference.PrioritySheddable, true
	}
	return inference.PriorityDefault, false
}
