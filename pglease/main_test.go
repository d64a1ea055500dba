package pglease_test

import (
	"flag"
	"os"
	"testing"

	_ "pgregory.net/rapid" // has the flag

	"github.com/pglease/pglease/pglease/pgleasetest"
)

// workerEnv makes the test binary a worker process.
const workerEnv = "PGLEASE_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(runWorker(os.Stdin, os.Stdout))
	}
	if err := flag.Set("rapid.checks", "10"); err != nil { // the command line overrides it
		panic(err)
	}
	pgleasetest.Main(m)
}
