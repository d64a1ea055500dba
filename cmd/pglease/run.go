package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pglease/pglease/internal/output"
)

// Exit codes.
const (
	exitDone  = 0
	exitError = 1
	exitUsage = 2
)

// A usageError says that the call was wrong, not the world.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// settings are the flags that every command has.
type settings struct {
	databaseURL string
	schema      string
}

// run is the whole command. It returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root, started := newRoot() //nolint:contextcheck // commands get it from ExecuteContext
	root.SetArgs(args)
	root.SetIn(stdin)
	out := output.New(stdout)
	root.SetOut(out)
	root.SetErr(stderr)
	err := out.Join(root.ExecuteContext(ctx))
	if err == nil {
		return exitDone
	}
	report(stderr, err)
	var usage usageError
	if (!*started && !out.Failed()) || errors.As(err, &usage) {
		fmt.Fprintln(stderr, "Run pglease --help, or a command with --help.")
		return exitUsage
	}
	return exitError
}

// newRoot returns the command, and whether a command began its work: an error before is about the
// call.
func newRoot() (root *cobra.Command, started *bool) {
	started = new(bool)
	s := new(settings)
	root = &cobra.Command{
		Use:   "pglease",
		Short: "Leases and fencing on Postgres: the operator's tool",
		Long: `Leases and fencing on Postgres: the operator's tool.

The database is the one at --database-url, else at PGLEASE_DATABASE_URL, else at
DATABASE_URL, else what psql would take: the PG* variables, the service and the
password file.

Exit codes: 0 done, 1 error, 2 wrong call.`,
		Args:          noArgs,
		RunE:          needsCommand,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) {
			*started = true
		},
	}
	root.PersistentFlags().StringVar(&s.databaseURL, "database-url", "", "URL or key=value string of the database")
	root.PersistentFlags().StringVar(&s.schema, "schema", "", `schema of the tables (default "pglease")`)
	root.AddCommand(newMigrate(s), newBench(s), newVersion())
	return root, started
}

// noArgs refuses arguments, as cobra.NoArgs does, and tells of flags that were not read as such.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.ArgsLenAtDash() >= 0 {
		return usagef(`%q takes no arguments; behind "--" nothing is read as a flag`, cmd.CommandPath())
	}
	return cobra.NoArgs(cmd, args)
}

// needsCommand is what a command does that only groups others.
func needsCommand(cmd *cobra.Command, _ []string) error {
	cmd.SetOut(cmd.ErrOrStderr())
	if err := cmd.Help(); err != nil {
		return err
	}
	return usagef("%q needs one of its commands", cmd.CommandPath())
}
