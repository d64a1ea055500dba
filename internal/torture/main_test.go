//go:build linux

package torture_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/pglease/pglease/internal/torture/worker"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// workerEnv makes the test binary a worker process.
const workerEnv = "PGLEASE_TORTURE_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(worker.Main(os.Stdin, os.Stderr))
	}
	pgleasetest.Main(m)
}

func again() *exec.Cmd {
	cmd := exec.Command(os.Args[0]) //nolint:noctx // the harness ends it
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	return cmd
}
