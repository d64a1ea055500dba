package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pglease/pglease/migrations"
)

// migrate has what the commands of the group share.
type migrate struct {
	*settings
	lineNames []string
}

func newMigrate(s *settings) *cobra.Command {
	m := &migrate{settings: s}
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create, change and remove the tables",
		Long: `Create, change and remove the tables.

The migrations come in lines, one for each part, so that nobody gets tables of a
part that they do not use: ` + lineList() + `.`,
		Args: noArgs,
		RunE: needsCommand,
	}
	cmd.PersistentFlags().StringSliceVar(&m.lineNames, "line", []string{string(migrations.Lease)},
		`lines to work on: `+lineList()+`, or "all"; may be repeated`)
	cmd.AddCommand(m.up(), m.down(), m.version(), m.force(), m.print())
	return cmd
}

func lineList() string {
	var names []string
	for _, line := range migrations.Lines() {
		names = append(names, string(line))
	}
	return strings.Join(names, ", ")
}

// lines returns those that were asked for, in the order in which they are applied.
func (m *migrate) lines() ([]migrations.Line, error) {
	known := migrations.Lines()
	for _, name := range m.lineNames {
		if name != "all" && !slices.Contains(known, migrations.Line(name)) {
			return nil, usagef("there is no line %q, only %s", name, lineList())
		}
	}
	wanted := slices.DeleteFunc(known, func(line migrations.Line) bool {
		return !slices.Contains(m.lineNames, "all") && !slices.Contains(m.lineNames, string(line))
	})
	if len(wanted) == 0 {
		return nil, usagef("no line was named; there are %s", lineList())
	}
	return wanted, nil
}

// A target is the database to work on.
type target struct {
	*migrations.Migrator
	pool *pgxpool.Pool
}

// work is what a command does with one line.
type work func(ctx context.Context, db target, line migrations.Line) error

// each does the work with each of the lines, and stops at the first error.
func (m *migrate) each(cmd *cobra.Command, lines []migrations.Line, do work) error {
	migrator, err := migrations.New(m.schema)
	if err != nil {
		return usageError{err}
	}
	pool, err := m.open(cmd.Context())
	if err != nil {
		return err
	}
	defer pool.Close()
	for _, line := range lines {
		if err := do(cmd.Context(), target{migrator, pool}, line); err != nil {
			return err
		}
	}
	return nil
}

func (m *migrate) up() *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Apply what is missing",
		Long: `Apply what is missing, each migration in a transaction of its own, and create the
schema if it is missing. It may run many times at once, and again after it was
killed.

When the database came from another server by pg_upgrade or by dump and restore,
it also raises the fences above those that were granted there.`,
		Example: "  pglease migrate up --database-url postgres://app@localhost/app",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lines, err := m.lines()
			if err != nil {
				return err
			}
			return m.each(cmd, lines, func(ctx context.Context, db target, line migrations.Line) error {
				result, err := db.Up(ctx, db.pool, line)
				printUp(cmd.OutOrStdout(), line, result, err == nil)
				return err
			})
		},
	}
}

func printUp(out io.Writer, line migrations.Line, result migrations.Result, complete bool) {
	for _, applied := range result.Applied {
		fmt.Fprintf(out, "%s: applied %d %s\n", line, applied.Version, applied.Name)
	}
	if result.Adopted {
		fmt.Fprintf(out, "%s: adopted: this is another server than before, fences now start above all earlier ones\n", line)
	}
	latest := migrations.Latest(line)
	switch {
	case !complete || len(result.Applied) > 0 || result.Adopted:
	case result.To > latest:
		fmt.Fprintf(out, "%s: nothing to do: version %d is newer than this program's %d\n", line, result.To, latest)
	default:
		fmt.Fprintf(out, "%s: nothing to do: version %d is the latest\n", line, result.To)
	}
}

func (m *migrate) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of the tables",
		Example: "  pglease migrate version --line all",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lines, err := m.lines()
			if err != nil {
				return err
			}
			return m.each(cmd, lines, func(ctx context.Context, db target, line migrations.Line) error {
				state, err := db.Version(ctx, db.pool, line)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: version %d, %s\n", line, state.Version, describe(state))
				return nil
			})
		},
	}
}

func describe(state migrations.State) string {
	switch {
	case state.Dirty:
		return "half applied by another tool"
	case state.Version < state.Latest:
		return fmt.Sprintf("behind %d", state.Latest)
	case state.Version > state.Latest:
		return fmt.Sprintf("newer than this program's %d", state.Latest)
	}
	return "the latest"
}
