package redistest

import (
	"bytes"
	"fmt"
	"os"
)

// stopped gives an error until the process has stopped.
func stopped(pid int) error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err
	}
	if _, after, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" ")); len(after) == 0 || after[0] != 'T' {
		return fmt.Errorf("process %d runs on", pid)
	}
	return nil
}
