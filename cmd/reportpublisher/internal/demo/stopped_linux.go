package demo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// isStopped tells whether every thread of the process is stopped by a signal.
func isStopped(_ context.Context, pid int) (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false, err
	}
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // this thread has ended
		}
		if err != nil {
			return false, err
		}
		// "pid (name) state ...": the name may contain anything.
		after := bytes.TrimLeft(stat[bytes.LastIndexByte(stat, ')')+1:], " ")
		if len(after) == 0 || after[0] == 'Z' || after[0] == 'X' {
			return false, fmt.Errorf("process %d has ended", pid)
		}
		if after[0] != 'T' {
			return false, nil
		}
	}
	if len(threads) == 0 {
		return false, fmt.Errorf("process %d has ended", pid)
	}
	return true, nil
}

// ownGroup keeps a Ctrl-C at the terminal from the workers, and ends them with the director.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
