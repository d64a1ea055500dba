package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pglease/pglease/internal/output"
)

// Exit statuses.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// A usageError is a call that cannot be meant: its exit status is 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// errReported is returned where all has been said on the output already.
var errReported = errors.New("reported")

// run executes the command line and returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot() //nolint:contextcheck // commands get it from ExecuteContextC
	root.SetArgs(args)
	root.SetIn(stdin)
	out := output.New(stdout)
	root.SetOut(out)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	err = out.Join(err)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitError
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "reportpublisher: %v\nRun '%s --help' for usage.\n", err, command.CommandPath())
		return exitUsage
	}
	fmt.Fprintf(stderr, "reportpublisher: %v\n", err)
	return exitError
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "reportpublisher",
		Short: "Publish monthly sales reports, one publisher at a time",
		Long: `reportpublisher adds up a month's sales and publishes the report under a lease,
into a store that refuses whoever lost that lease.

Begin with the demo; it needs no set-up:

  reportpublisher demo
  reportpublisher demo --unfenced

publish takes a lease and makes the report itself. enqueue asks for it, once for
a month, and a worker makes it. The README says when to choose which.

The database is that of --database-url, or else of PGLEASE_DATABASE_URL,
DATABASE_URL, or PGHOST and its like. Exit status: 0 done, 1 error, 2 usage.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usageArgs(cobra.NoArgs),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newPublish(), newRead(), newHistory(), newEnqueue(), newWorker(), newDemo(), newDemoWorker())
	return root
}

// usageArgs makes an error about the arguments a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
