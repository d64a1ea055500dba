package profile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// spentBy returns the processor's time that a process has had, which the kernel counts in nanoseconds. It is
// exact while the process sleeps; of one that runs it is that of its last turn's beginning.
func spentBy(pid uint32) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0, err
	}
	first, _, _ := bytes.Cut(b, []byte(" "))
	n, err := strconv.ParseInt(string(first), 10, 64)
	return time.Duration(n), err
}

// Times of a wait for a process that has answered and is about to sleep.
const (
	lookAgain = 50 * time.Microsecond
	mostAwait = 10 * time.Second // on a machine that is very busy
)

var errRuns = errors.New("the server's process has answered and does not come to rest")

// awaitSleep returns when the process waits for its next message.
func awaitSleep(ctx context.Context, pid uint32) error {
	for began := time.Now(); time.Since(began) < mostAwait; {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return err
		}
		end := bytes.LastIndexByte(b, ')') // of the name, which may hold anything
		if len(b) > end+2 && b[end+2] == 'S' {
			return nil
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return errRuns
}

// spentHere is the processor's time that this process has had.
func spentHere() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// load1 is the load average of the last minute; 0 where it cannot be read.
func load1() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := bytes.Cut(b, []byte(" "))
	x, _ := strconv.ParseFloat(string(first), 64)
	return x
}
