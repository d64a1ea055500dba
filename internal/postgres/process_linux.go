package postgres

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// setAttributes puts the child in a process group of its own, so that a ^C at the terminal is left
// to us, and has the kernel end it at once when we are gone. SIGQUIT is the immediate shutdown of
// Postgres, which takes its own children along.
func setAttributes(cmd *exec.Cmd, who account) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	if who.dropped {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(who.uid), Gid: uint32(who.gid)}
	}
}

// children returns the ids of the processes whose parent is pid.
func children(pid int) []int {
	var found []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		_, parent := processState(path)
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && parent == pid {
			found = append(found, child)
		}
	}
	return found
}

// alive tells whether pid is a process that runs. A zombie does not: where nobody reaps, as under
// some containers' first process, it would stay for ever.
func alive(pid int) bool {
	state, _ := processState("/proc/" + strconv.Itoa(pid) + "/stat")
	return state != 0 && state != 'Z' && state != 'X'
}

// processState reads the state letter and the parent from a stat file; zeros when it is gone. The
// command name before them may contain anything, so it is skipped from its last parenthesis.
func processState(path string) (state byte, parent int) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 0
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 2 || len(fields[0]) == 0 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	return fields[0][0], parent
}

// commandLine returns the arguments of a process, separated by spaces.
func commandLine(pid int) string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))
}
