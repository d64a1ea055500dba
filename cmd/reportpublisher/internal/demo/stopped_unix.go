//go:build unix && !linux

package demo

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// isStopped tells whether the process is stopped by a signal.
func isStopped(ctx context.Context, pid int) (bool, error) {
	state, err := exec.CommandContext(ctx, "ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return false, fmt.Errorf("ps: %w", err)
	}
	return strings.HasPrefix(strings.TrimSpace(string(state)), "T"), nil
}

// ownGroup keeps a Ctrl-C at the terminal from the workers. When the director dies, their group is
// orphaned and the kernel continues and hangs up those that are stopped.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
