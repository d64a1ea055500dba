package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// When the command is killed, its servers go with it.
func TestKilledCommandLeavesNoServer(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "--work", "pairs", "--clients", "1", "--for", "20s", "--rounds", "1", "--only", "etcd,zookeeper,redsync")
	cmd.Env = append(os.Environ(), asCommand+"=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stderr).ReadString('\n')
	if !strings.HasPrefix(line, "pairs") {
		t.Errorf("it says %q, %v", line, err)
	}
	servers := children(t, cmd.Process.Pid)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	for _, want := range []string{"postgres", "etcd", "java", "redis-server"} {
		if !strings.Contains(fmt.Sprint(servers), want) {
			t.Errorf("%s was not among its processes: %v", want, servers)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		left := []string{}
		for pid, name := range servers {
			if now, _ := process(pid); now == name {
				left = append(left, name)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still running: %v", left)
		}
	}
}

// children returns the names of the processes whose parent is pid.
func children(t *testing.T, pid int) map[int]string {
	t.Helper()
	found := map[int]string{}
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		child, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		if name, parent := process(child); parent == pid {
			found[child] = name
		}
	}
	return found
}

// process returns the name and the parent of a process that runs; a zombie does not.
func process(pid int) (name string, parent int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 2 || fields[0] == "Z" {
		return "", 0
	}
	parent, err = strconv.Atoi(fields[1])
	if err != nil {
		return "", 0
	}
	return string(b[open+1 : end]), parent
}
