package inference

// Pick is how one of a target's endpoints is chosen for a call.
type Pick uint8

// The ways to choose.
const (
	LeastLoaded Pick = iota // the less busy one of two drawn at random
	RoundRobin              // one after the other
	HashUser                // the same one for the same user, unless it is a quarter busier than the average
	QueueDepth              // as LeastLoaded, and requests that wait in the model server count too, whoever sent them
)

var pickNames = [...]string{"least_loaded", "round_robin", "hash(user)", "queue_depth"}

func (p Pick) String() string { return pickNames[p] }
