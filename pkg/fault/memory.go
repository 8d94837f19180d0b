package fault

// NoMemory is the fault of a message that the gateway has no room to read.
func NoMemory() *Fault {
	return New(Memory, "the gateway holds as many bytes of requests as it may, and this one was not read; try again, or ask the operator for more replicas or to raise listen.max_bytes_held")
}
