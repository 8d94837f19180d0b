package inference

// Home is where the sequence of a call is by what all replicas know together. It is nil for calls on their own, and where
// replicas know nothing together. Like the call it belongs to one goroutine at a time.
type Home struct {
	// Endpoint is the address that has the sequence's state; "" when nobody has said.
	Endpoint string
	// Mark tells a sequence from later ones of the same id.
	Mark string
	// Lost says that the state is gone, and callers have been told.
	Lost bool
	// New says that nobody knows of the sequence yet: whoever chooses an endpoint for it has to Settle that before
	// anything is sent.
	New bool
	// Settle makes endpoint known to all, unless another replica was quicker, and writes into this Home what is known
	// then. While that cannot be done Endpoint stays "", and what this replica knows by itself has to do. It may take as
	// long as the store of replicas may.
	Settle func(endpoint string)
	// Lose makes it known to all that the state is gone.
	Lose func()
}
