//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filestore

import (
	"errors"
	"os"
	"syscall"
)

func lockable() error { return nil }

// tryLock takes the lock if it is free. Each opened file has a lock of its own, also within one
// process.
func tryLock(f *os.File) (got bool, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var failure error
	err = raw.Control(func(fd uintptr) {
		failure = syscall.EINTR
		for errors.Is(failure, syscall.EINTR) {
			failure = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB)
		}
	})
	switch {
	case err != nil:
		return false, err
	case errors.Is(failure, syscall.EWOULDBLOCK):
		return false, nil
	case failure != nil:
		return false, os.NewSyscallError("flock", failure)
	}
	return true, nil
}
