//go:build !unix

package portmux

import (
	"errors"
	"syscall"
)

const canPeek = false

func peek(syscall.Conn) (verdict, error) { return more, errors.ErrUnsupported }
