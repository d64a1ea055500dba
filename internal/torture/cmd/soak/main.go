//go:build linux

// Command soak runs the torture harness for as long as it is told, and prints what came of it:
//
//	go run ./internal/torture/cmd/soak --for 10m --seed 7 --json
//
// It ends with 1 where a checker found a violation; then it also prints the smallest slice of the
// history that shows it, and says where the whole history is.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/pglease/pglease/internal/torture"
	"github.com/pglease/pglease/internal/torture/mutant"
	"github.com/pglease/pglease/internal/torture/worker"
)

// workerEnv makes this program a worker process.
const workerEnv = "PGLEASE_TORTURE_WORKER"

func main() {
	if os.Getenv(workerEnv) != "" {
		os.Exit(worker.Main(os.Stdin, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(stderr)
	length := flags.Duration("for", time.Minute, "how long to run")
	leg := flags.Duration("leg", time.Minute, "how long to run before what happened is checked")
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()), "what faults and work are drawn from") //nolint:gosec // positive
	asJSON := flags.Bool("json", false, "print JSON")
	dir := flags.String("dir", "", "where to put the histories; default: a temporary directory, which is kept after a violation")
	plant := flags.String("plant", "", "run with this bug planted, to see it found")
	only := flags.String("only", "", "the kinds of faults to make, separated by commas; default: all")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	planted, ok := mutant.Find(*plant)
	if !ok {
		fmt.Fprintf(stderr, "soak: there is no bug %q\n", *plant)
		return 2
	}
	kinds := planted.Only
	if *only != "" {
		kinds = strings.Split(*only, ",")
	}
	report, err := soak(ctx, *dir, torture.Options{
		For: *length, Leg: *leg, Seed: *seed, Planted: planted, Only: kinds, Log: stderr, Worker: again,
	})
	if err != nil {
		fmt.Fprintln(stderr, "soak:", err)
		return 2
	}
	if *asJSON {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		report.Print(stdout)
	}
	switch {
	case err != nil:
		return 2
	case len(report.Violations) > 0:
		return 1
	}
	return 0
}

// soak runs in a directory of its own, which is removed unless there is something to look at.
func soak(ctx context.Context, dir string, o torture.Options) (torture.Report, error) {
	base, err := os.MkdirTemp(dir, "pglease-soak-")
	if err != nil {
		return torture.Report{}, err
	}
	o.Dir = base
	report, err := torture.Run(ctx, o)
	if err == nil && len(report.Violations) == 0 {
		err = os.RemoveAll(base)
	}
	return report, err
}

// again is the command of a worker process: this program once more.
func again() *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	cmd := exec.Command(self) //nolint:noctx // the harness ends it
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	return cmd
}
