//go:build !linux || race

package socket

import "net"

// Quick gives c itself: only Linux lets a program make system calls by itself, and the race detector takes it for proof of an order
// between two goroutines that one has read what the other wrote, which it has to be told of by the usual way.
func Quick(c net.Conn) net.Conn { return c }
