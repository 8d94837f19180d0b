//go:build unix

package redistest

import "syscall"

const (
	stop   = syscall.SIGSTOP
	resume = syscall.SIGCONT
)
