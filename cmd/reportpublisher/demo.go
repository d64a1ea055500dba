package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglease/pglease/cmd/reportpublisher/internal/demo"
)

const demoHelp = `demo shows what happens to a report when its publisher is stopped at the worst
moment. Two workers run as processes of their own. W1 acquires the lease of
report/2026-07, computes the report from an older set of files, checks its lease
once more, and is then stopped with SIGSTOP, before its write. The lease
expires, W2 takes over and publishes. W1 is resumed and writes.

With fencing the store refuses W1's write. With --unfenced both workers write
with a plain UPDATE, and W1's older report replaces W2's. The leases are the
same in both.

Without a URL a private Postgres is started and removed again. With one, from
--database-url, PGLEASE_DATABASE_URL or DATABASE_URL, the demo makes a schema of
its own in that database, drops it at the end unless --keep is given, and
touches nothing else. A demo that was killed can drop nothing: the next one on
that database does it.

With --json the standard output is one object of what the database says, and the
story goes to the standard error. Exit status: 0 where the outcome is the one
that the mode promises, 1 where not.`

func newDemo() *cobra.Command {
	var options demo.Options
	var asJSON bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "Play the story of the paused publisher, with real processes",
		Long:  demoHelp,
		Args:  usageArgs(cobra.NoArgs),
		RunE:  func(c *cobra.Command, _ []string) error { return playDemo(c, options, asJSON) },
	}
	c.Flags().StringVar(&options.URL, "database-url", "", "play on this server; default $"+urlVariable+", then $DATABASE_URL")
	c.Flags().BoolVar(&options.Unfenced, "unfenced", false, "write with a plain UPDATE, to see the corruption")
	c.Flags().DurationVar(&options.TTL, "ttl", 2*time.Second, "how long a lease lives without renewal, 1s to 20s")
	c.Flags().BoolVar(&options.Keep, "keep", false, "leave the schema in the database that was given, to look at it")
	c.Flags().BoolVar(&asJSON, "json", false, "end with one JSON object")
	return c
}

func playDemo(c *cobra.Command, options demo.Options, asJSON bool) error {
	options.URL = givenURL(options.URL)
	switch {
	case options.TTL < time.Second || options.TTL > 20*time.Second:
		return usageError{errors.New("--ttl is not between 1s and 20s")}
	case options.Keep && options.URL == "":
		return usageError{errors.New("--keep needs a database that stays: name it with --database-url")}
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	options.Command = func(w demo.Worker) *exec.Cmd { return workerCommand(program, w) }
	out := c.OutOrStdout()
	if asJSON {
		out = c.ErrOrStderr()
	}
	// A reader such as head may leave early; the demo still has to clean up.
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGPIPE)
	defer stop()
	outcome, err := options.Play(ctx, demo.NewStory(out))
	if err != nil {
		return err
	}
	if asJSON {
		err = json.NewEncoder(c.OutOrStdout()).Encode(outcome)
	}
	if err == nil && outcome.AsPromised() != nil {
		err = errReported // by the story's last sentence
	}
	return err
}

// workerName is the hidden command that a worker's process runs.
const workerName = "demo-worker"

// workerCommand runs this program as a worker. The URL goes by the environment: it may hold a
// password, and arguments can be seen by everybody on the machine.
func workerCommand(program string, w demo.Worker) *exec.Cmd {
	url := w.URL
	w.URL = ""
	told, err := json.Marshal(w)
	if err != nil {
		panic(err) // it is made of texts, numbers and lists of texts
	}
	cmd := exec.Command(program, workerName, string(told))
	cmd.Env = append(slices.DeleteFunc(os.Environ(), isURL), urlVariable+"="+url)
	return cmd
}

func isURL(variable string) bool {
	return len(variable) > len(urlVariable) && variable[:len(urlVariable)+1] == urlVariable+"="
}

func newDemoWorker() *cobra.Command {
	return &cobra.Command{
		Use:    workerName + " WORKER",
		Short:  "One of the demo's two workers; started by it",
		Hidden: true,
		Args:   usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			var w demo.Worker
			if err := json.Unmarshal([]byte(args[0]), &w); err != nil {
				return usageError{fmt.Errorf("the worker: %w", err)}
			}
			w.URL = os.Getenv(urlVariable)
			if w.Run(c.Context(), c.InOrStdin(), c.OutOrStdout()) != nil {
				return errReported
			}
			return nil
		},
	}
}
