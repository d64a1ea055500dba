package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/pglease/pglease/migrations"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program and of its migrations",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, goVersion := "(unknown)", ""
			if info, ok := debug.ReadBuildInfo(); ok {
				version, goVersion = info.Main.Version, info.GoVersion
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "pglease %s %s\n", version, goVersion)
			for _, line := range migrations.Lines() {
				fmt.Fprintf(out, "migrations of line %s: up to %d\n", line, migrations.Latest(line))
			}
			return nil
		},
	}
}
