// Package socket reads and writes connections without a word to the scheduler.
//
// Around each system call Go's runtime gets ready to hand its processor to other goroutines, and wakes the thread that would
// do so when the program was idle. A call to a gateway that is not busy finds it idle each time: that thread is woken
// on the way in and again on the way out, and for each of them then looks round every 20 µs until all is idle once more. It
// was a fifth of the CPU of a small call at 2,000 calls a second, and some microseconds of its latency.
//
// A socket that does not block has no need of it: reading and writing it take as long as copying the bytes, and what waits
// for more bytes is parked before and after, as for any connection.
package socket
