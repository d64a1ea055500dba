package sequences_test

import (
	"os"
	"testing"

	"github.com/pglease/pglease/pglease/pgleasetest"
)

// workerEnv makes the test binary a worker process.
const workerEnv = "PGLEASE_TEST_SEQUENCE_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(runWorker(os.Stdin, os.Stdout))
	}
	pgleasetest.Main(m)
}
