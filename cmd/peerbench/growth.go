package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pglease/pglease/cmd/peerbench/internal/growth"
)

func growthCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := growth.Options{Notice: stderr}
	flags := newFlags("peerbench growth", stderr)
	growthFlags(flags, &o)
	flags.Var((*words)(&o.Works), "work", "`works` to do, with commas between: "+strings.Join(growth.Works(), ", ")+" (default all)")
	out := flags.String("out", "", "`directory` for the pictures and the numbers")
	asJSON := flags.Bool("json", false, "print a JSON object a curve")
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return usageError{err}
	}
	return growth.Run(ctx, o, func(c growth.Curve) error {
		if *out != "" {
			if err := c.Write(*out); err != nil {
				return err
			}
		}
		if *asJSON {
			return json.NewEncoder(stdout).Encode(c)
		}
		_, err := fmt.Fprintf(stdout, "\n%s\n\n%s", c.Title, c.Text())
		return err
	})
}

// growthFlags adds those that say how far it grows.
func growthFlags(flags *flag.FlagSet, o *growth.Options) {
	flags.DurationVar(&o.For, "for", time.Second, "how long each load runs in a round")
	flags.IntVar(&o.Rounds, "rounds", 3, "number of rounds")
	flags.IntVar(&o.Resources, "resources", 1_000_000, "the most resources")
	flags.IntVar(&o.Waiters, "waiters", 1_000, "the longest line")
	flags.IntVar(&o.History, "history", 10_000_000, "the most recorded tenures")
	flags.IntVar(&o.Leases, "leases", 10_000, "the most leases of one client")
	flags.DurationVar(&o.Snapshot, "snapshot", time.Minute, "how long a snapshot is held open")
}
