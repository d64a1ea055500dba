package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/postgres"
)

// roleVariable makes the test binary play a process of its own.
const roleVariable = "PGLEASE_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	case "hold":
		exit(hold())
	case "start":
		exit(startAndStop())
	case "embedded":
		exit(embedded(os.Getenv("PGLEASE_PG_MIRROR")))
	default:
		exit(fmt.Errorf("unknown role %q", role))
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hold starts a server, says where, and waits to be killed, or for the end of its input, where it
// ends without Stop.
func hold() error {
	s, err := postgres.Start(context.Background(), postgres.Options{})
	if err != nil {
		return err
	}
	fmt.Println(s.PID(), s.DataDir())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func startAndStop() error {
	s, err := postgres.Start(context.Background(), postgres.Options{})
	if err != nil {
		return err
	}
	return s.Stop()
}

// child is this test binary in a role. It ends with the test at the latest.
func child(t *testing.T, role string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(append(os.Environ(), roleVariable+"="+role), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// startHolder returns a child that holds a server, and that server's process and data.
func startHolder(t *testing.T) (cmd *exec.Cmd, pid int, dataDir string) {
	t.Helper()
	cmd = child(t, "hold")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the child said %q: %v", line, err)
	}
	number, dataDir, _ := strings.Cut(strings.TrimSpace(line), " ")
	if pid, err = strconv.Atoi(number); err != nil {
		t.Fatal(err)
	}
	return cmd, pid, dataDir
}

// awaitEnd polls: a process that is not our child cannot be waited for.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for postgres.Alive(pid) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d goes on", pid)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestServerEndsWithItsParent(t *testing.T) {
	t.Parallel()
	parent, pid, dataDir := startHolder(t)
	backends := postgres.Children(pid)
	if !postgres.Alive(pid) {
		t.Fatalf("process %d is not alive", pid)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()

	// Where the kernel does not end the server, the sweep does.
	base := filepath.Dir(dataDir)
	age(t, base)
	if runtime.GOOS == "linux" {
		for _, pid := range append(backends, pid) {
			awaitEnd(t, pid)
		}
	}
	age(t, base) // the server removed its socket
	postgres.Sweep([]string{filepath.Dir(base)})
	if postgres.Alive(pid) {
		t.Error("the server goes on after the sweep")
	}
	if _, err := os.Stat(base); !os.IsNotExist(err) {
		t.Errorf("%s is there after the sweep: %v", base, err)
	}
}

func TestSweepLeavesTheLiving(t *testing.T) {
	t.Parallel()
	_, pid, dataDir := startHolder(t)
	base := filepath.Dir(dataDir)
	age(t, base)
	postgres.Sweep([]string{filepath.Dir(base)})
	if !postgres.Alive(pid) {
		t.Error("the sweep ended the server of a process that lives")
	}
	if _, err := os.Stat(dataDir); err != nil {
		t.Error(err)
	}
}

func TestTemplateIsMadeByManyAtOnce(t *testing.T) {
	t.Parallel()
	cache, err := postgres.EnterableTempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(cache) })
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if err := child(t, "start", "PGLEASE_CACHE_DIR="+cache).Run(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	entries, err := os.ReadDir(filepath.Join(cache, "clusters"))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("in the cache are %v, want one cluster", entries)
	}
}

// age makes a directory old enough to be swept.
func age(t *testing.T, dir string) {
	t.Helper()
	old := time.Now().Add(-2 * postgres.Youngest)
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
}
