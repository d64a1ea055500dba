//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package postgres

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// setAttributes puts the child in a process group of its own, so that a ^C at the terminal is left
// to us. These systems have no parent-death signal: sweep ends servers whose parent is gone.
func setAttributes(cmd *exec.Cmd, who account) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if who.dropped {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(who.uid), Gid: uint32(who.gid)}
	}
}

// children returns the ids of the processes whose parent is pid.
func children(pid int) []int {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil
	}
	var found []int
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[1] == strconv.Itoa(pid) {
			if child, err := strconv.Atoi(fields[0]); err == nil {
				found = append(found, child)
			}
		}
	}
	return found
}

// alive tells whether pid is a process that runs; one of another user's does.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || err == syscall.EPERM
}

// commandLine returns the arguments of a process, separated by spaces.
func commandLine(pid int) string {
	out, _ := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return string(out)
}
