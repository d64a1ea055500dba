package containers_test

import (
	"os"
	"testing"
)

// workerEnv makes the test binary the owner that runs in a container.
const workerEnv = "PGLEASE_TEST_CONTAINER_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(runWorker(os.Stdout))
	}
	os.Exit(m.Run())
}
