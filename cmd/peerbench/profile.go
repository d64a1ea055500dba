package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"strings"
	"time"

	"github.com/pglease/pglease/cmd/peerbench/internal/profile"
)

func profileCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := profile.Options{Notice: stderr}
	flags := newFlags("peerbench profile", stderr)
	profileFlags(flags, &o)
	flags.Var((*words)(&o.Works), "work", "`works` to do, with commas between: "+strings.Join(profile.Works(), ", ")+" (default all)")
	asJSON := flags.Bool("json", false, "print one JSON object")
	markdown := flags.Bool("markdown", false, "print tables in Markdown")
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return usageError{err}
	}
	result, err := profile.Run(ctx, o)
	if err != nil {
		return err
	}
	switch {
	case *asJSON:
		return json.NewEncoder(stdout).Encode(result)
	case *markdown:
		return result.Markdown(stdout, 2)
	}
	return result.Text(stdout)
}

// Of many short rounds the medians are the steadier, and what is compared is done close to each other.
const (
	profileFor    = 150 * time.Millisecond
	profileRounds = 7
)

// profileFlags adds those that say for how long.
func profileFlags(flags *flag.FlagSet, o *profile.Options) {
	flags.DurationVar(&o.For, "for", profileFor, "how long each work is done in a round")
	flags.IntVar(&o.Rounds, "rounds", profileRounds, "number of rounds")
}
