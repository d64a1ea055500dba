//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// An interrupted demo leaves neither process nor table, although W1 is frozen.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	url, pool := place(t)
	cmd, workers := endedWhileFrozen(t, url, os.Interrupt)
	if cmd.ProcessState.ExitCode() != exitError {
		t.Errorf("ended with %v, want exit code %d", cmd.ProcessState, exitError)
	}
	for _, pid := range workers {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("worker %d is left: %v", pid, err)
		}
	}
	query(t, pool, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'reportpublisher_demo_%'", func(pgx.Rows) error {
		return errors.New("the schema is left")
	})
}

// A demo that is killed can clean up nothing; the kernel ends its workers, the frozen one too, and
// the next demo drops its schema.
func TestDemoKilled(t *testing.T) {
	t.Parallel()
	url, pool := place(t)
	_, workers := endedWhileFrozen(t, url, os.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for _, pid := range workers {
		for alive(pid) {
			select {
			case <-look.C:
			case <-ctx.Done():
				t.Fatalf("worker %d lives on", pid)
			}
		}
	}
	const schemas = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'reportpublisher_demo_%'"
	var left []string
	collect := func(row pgx.Rows) error {
		var name string
		err := row.Scan(&name)
		left = append(left, name)
		return err
	}
	query(t, pool, schemas, collect)
	if len(left) != 1 {
		t.Fatalf("the killed demo left the schemas %q", left)
	}
	call(t.Context(), nil, "demo", "--database-url", url).Want(t, exitOK, "demos that were killed had left: schemas: 1\n", "")
	left = nil
	query(t, pool, schemas, collect)
	if len(left) != 0 {
		t.Errorf("the schemas %q are left", left)
	}
}

// alive tells whether there is such a process that is no zombie: whoever inherits a worker may
// take its time to bury it.
func alive(pid int) bool {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if errors.Is(err, exec.ErrNotFound) {
		return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

// endedWhileFrozen runs the demo, sends it the signal as soon as W1 is frozen, and waits for its
// end. It returns the process and those of the workers.
func endedWhileFrozen(t *testing.T, url string, signal os.Signal) (cmd *exec.Cmd, workers []int) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), program, "demo", "--ttl", "20s", "--database-url", url)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	process := regexp.MustCompile(`W[12] +process (\d+)`)
	for story := bufio.NewScanner(stdout); story.Scan(); {
		if found := process.FindStringSubmatch(story.Text()); found != nil {
			pid, _ := strconv.Atoi(found[1])
			workers = append(workers, pid)
		}
		if strings.Contains(story.Text(), "FROZEN") {
			if err := cmd.Process.Signal(signal); err != nil {
				t.Error(err)
			}
		}
	}
	_ = cmd.Wait() // the state tells
	if len(workers) != 2 {
		t.Fatalf("workers %v, want 2", workers)
	}
	return cmd, workers
}
