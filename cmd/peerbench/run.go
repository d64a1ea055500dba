package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/pglease/pglease/cmd/peerbench/internal/contest"
	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
)

// Exit codes.
const (
	exitDone  = 0
	exitError = 1
	exitUsage = 2
)

const usage = `peerbench compares this library with what people would pick instead.

  peerbench [flags]            the table of peers
  peerbench growth [flags]     how the cost grows with rows, waiters, leases and time
  peerbench profile [flags]    what one statement costs the processors, and its parts
  peerbench docs [flags]       all of them, put into docs/performance.md

peerbench COMMAND --help lists the flags.
`

// run is the whole command. It returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	err := command(ctx, args, stdin, stdout, stderr)
	var wrong usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return exitDone
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "peerbench: %v\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "peerbench: %v\n", err)
	return exitError
}

// A usageError says that the call was wrong, not the world.
type usageError struct{ error }

func command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	name := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	switch name {
	case "":
		return table(ctx, args, stdout, stderr)
	case "growth":
		return growthCommand(ctx, args, stdout, stderr)
	case "profile":
		return profileCommand(ctx, args, stdout, stderr)
	case "docs":
		return docs(ctx, args, stderr)
	case contest.HoldCommand: // what the table starts itself
		return contest.Hold(ctx, args, stdin, stdout)
	}
	fmt.Fprint(stderr, usage)
	return usageError{fmt.Errorf("there is no command %q", name)}
}

func table(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := contest.Options{Notice: stderr}
	flags := newFlags("peerbench", stderr)
	tableFlags(flags, &o)
	asJSON := flags.Bool("json", false, "print one JSON object")
	markdown := flags.Bool("markdown", false, "print tables in Markdown")
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return usageError{err}
	}
	result, err := contest.Run(ctx, o)
	if err != nil && !errors.Is(err, servers.ErrMissing) {
		return err
	}
	switch {
	case *asJSON:
		return errors.Join(err, json.NewEncoder(stdout).Encode(result))
	case *markdown:
		return errors.Join(err, result.Markdown(stdout, 2))
	}
	return errors.Join(err, result.Text(stdout))
}

func newFlags(name string, stderr io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	if name == "peerbench" {
		flags.Usage = func() {
			fmt.Fprint(stderr, usage+"\nFlags of the table:\n")
			flags.PrintDefaults()
		}
	}
	return flags
}

func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err}
	}
	if flags.NArg() > 0 {
		return usageError{fmt.Errorf("%q is not a flag", flags.Arg(0))}
	}
	return nil
}

// tableFlags adds those that say what the table has.
func tableFlags(flags *flag.FlagSet, o *contest.Options) {
	o.Clients, o.Contenders = []int{1, 8, 32}, []int{2, 8, 64}
	flags.Var((*words)(&o.Peers), "only", "`peers` to compare, with commas between (default all)")
	flags.Var((*words)(&o.Works), "work", "`works` to do, with commas between: "+strings.Join(contest.Works(), ", ")+" (default all)")
	flags.Var((*sizes)(&o.Clients), "clients", "`numbers` of clients for pairs")
	flags.Var((*sizes)(&o.Contenders), "contenders", "`numbers` of contenders for hand-overs")
	flags.IntVar(&o.Leases, "leases", 1000, "locks of the client that renews")
	flags.DurationVar(&o.For, "for", time.Second, "how long each load runs in a round")
	flags.IntVar(&o.Rounds, "rounds", 5, "number of rounds")
	flags.DurationVar(&o.TTL, "ttl", 2*time.Second, "TTL of the locks that are taken over")
}

// words is a flag of words with commas between.
type words []string

// String implements flag.Value.
func (w *words) String() string { return strings.Join(*w, ",") }

// Set implements flag.Value.
func (w *words) Set(text string) error {
	*w = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	return nil
}

// sizes is a flag of numbers with commas between.
type sizes []int

// String implements flag.Value.
func (s *sizes) String() string {
	list := make([]string, len(*s))
	for i, n := range *s {
		list[i] = strconv.Itoa(n)
	}
	return strings.Join(list, ",")
}

// Set implements flag.Value.
func (s *sizes) Set(text string) error {
	*s = nil
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 {
			return fmt.Errorf("%q is not a number from 1", word)
		}
		*s = append(*s, n)
	}
	return nil
}
