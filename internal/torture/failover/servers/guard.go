//go:build unix

package servers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
)

// Guard runs a shell command when the test has ended, or this process has, in whatever way: for what the
// kernel does not take back when a process dies. The command finds the place in $PLACE.
func Guard(tb testing.TB, place, command string) {
	tb.Helper()
	r, w, err := os.Pipe() // the kernel closes our end when we die, which is all that the shell waits for
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), "sh", "-c", "cat; "+command)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "PLACE=" + place}
	cmd.Stdin = r
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = errors.Join(w.Close(), cmd.Wait(), r.Close()) })
}
