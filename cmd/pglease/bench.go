package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pglease/pglease/cmd/pglease/internal/bench"
)

func newBench(s *settings) *cobra.Command {
	o := bench.Options{}
	history, asJSON := "", false
	cmd := &cobra.Command{
		Use:   "bench WORK",
		Short: "Measure what the database sustains",
		Long: `Measure what the database sustains of a work, beside its limit: bare
single-row UPDATEs by as many connections. Both run in turn, several rounds;
what is printed are medians, and the ratio of the two.

` + benchWorks() + `
It makes a schema of its own, pglease_bench_ and some letters, and drops it,
also after Ctrl-C. Where no database is named it starts a private one with
fsync on.`,
		Example: `  pglease bench pairs --clients 32
  pglease bench refused --database-url postgres://app@localhost/app
  pglease bench handoff --waiters 1000
  pglease bench renew --leases 10000 --for 2s
  pglease bench publish --rounds 15 --json`,
		Args: cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Clients, "clients", 0, fmt.Sprintf("how many work at the same time (default %d)", bench.DefaultClients))
	flags.DurationVar(&o.For, "for", bench.DefaultFor, "how long each load runs in a round")
	flags.IntVar(&o.Rounds, "rounds", bench.DefaultRounds, "number of rounds")
	flags.IntVar(&o.Waiters, "waiters", 0, "handoff: how many stand in line; 0: clients take turns")
	flags.IntVar(&o.Processes, "processes", 0, "handoff: spread over so many (default: one each, or 8)")
	flags.BoolVar(&o.DirectWake, "direct-wake", false, "handoff: wake each process by itself, not by NOTIFY")
	flags.IntVar(&o.Leases, "leases", 0, fmt.Sprintf("renew: leases of the client (default %d)", bench.DefaultLeases))
	flags.StringVar(&history, "history", "on", "record ended tenures, on or off")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if history != "on" && history != "off" {
			return usagef("--history is on or off, not %q", history)
		}
		o.Work, o.NoHistory = args[0], history == "off"
		return s.bench(cmd, o, asJSON)
	}
	return cmd
}

func (s *settings) bench(cmd *cobra.Command, o bench.Options, asJSON bool) error {
	if s.schema != "" {
		return usagef("bench makes a schema of its own; --schema is not for it")
	}
	o.URL, o.Notice = s.benchURL(), cmd.ErrOrStderr()
	result, err := bench.Run(cmd.Context(), o)
	switch {
	case errors.Is(err, bench.ErrOptions):
		return usageError{err}
	case err != nil:
		return err
	case asJSON:
		return json.NewEncoder(cmd.OutOrStdout()).Encode(result)
	}
	return result.Print(cmd.OutOrStdout())
}

func benchWorks() string {
	var b strings.Builder
	for _, w := range bench.Works() {
		fmt.Fprintf(&b, "  %-8s %s\n", w.Name, w.Summary)
	}
	return b.String()
}

// benchURL names the database where one was named in any way: the PG* variables of a host or a
// service count too. A string that is not empty leaves the rest to them.
func (s *settings) benchURL() string {
	if url := s.url(); url != "" {
		return url
	}
	for _, variable := range []string{"PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"} {
		if os.Getenv(variable) != "" {
			return "connect_timeout=10"
		}
	}
	return ""
}
