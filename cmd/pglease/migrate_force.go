package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pglease/pglease/migrations"
)

func (m *migrate) force() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "force VERSION",
		Short: "Record a version and run nothing",
		Long: `Record that a line stands at VERSION, 0 for none, and run nothing.

It is for you who looked at the tables: after another tool left a version half
applied, or to go on with this program after another tool applied the same SQL.`,
		Example: "  pglease migrate force 1",
		Args:    oneVersion,
		RunE: func(cmd *cobra.Command, args []string) error {
			version, err := parseVersion(args[0])
			if err != nil {
				return err
			}
			lines, err := m.lines()
			if err != nil {
				return err
			}
			if len(lines) != 1 {
				return usagef("force works on one line")
			}
			return m.each(cmd, lines, func(ctx context.Context, db target, line migrations.Line) error {
				if err := db.Force(ctx, db.pool, line, version); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: recorded version %d\n", line, version)
				return nil
			})
		},
	}
	// A negative version looks like a flag.
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usagef("%w; VERSION is a number from 1 on, or 0 for none", err)
	})
	return cmd
}

// oneVersion takes VERSION alone. It does not repeat what it refuses: that may hold a password.
func oneVersion(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case len(args) == 1:
		return nil
	case len(args) == 0:
		return usagef("VERSION is missing: a number from 1 on, or 0 for none")
	case dash >= 0:
		return usagef(`%d arguments where VERSION alone is taken, a number from 1 on, or 0 for none; behind "--" nothing is read as a flag`, len(args))
	}
	return usagef("%d arguments where VERSION alone is taken, a number from 1 on, or 0 for none", len(args))
}

func parseVersion(text string) (uint, error) {
	version, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, usagef("%q is not a version: a number from 1 on, or 0 for none", text)
	}
	return uint(version), nil
}
