//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package postgres

import (
	"os"
	"syscall"
)

// What Postgres does at each signal.
const (
	fastShutdown      = syscall.SIGINT
	immediateShutdown = syscall.SIGQUIT
	frozen            = syscall.SIGSTOP
	killed            = syscall.SIGKILL
)

type signalNumber = syscall.Signal

func signal(pid int, s signalNumber) error { return syscall.Kill(pid, s) }

// lock takes the file's lock for as long as this process lives and keeps it open. It reports false
// when another has it. Children do not inherit it: Go opens files close-on-exec.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// owner returns who owns a file.
func owner(info os.FileInfo) (uid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}
