package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pglease/pglease/cmd/peerbench/internal/contest"
	"github.com/pglease/pglease/cmd/peerbench/internal/growth"
	"github.com/pglease/pglease/cmd/peerbench/internal/profile"
	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
)

// docs measures and puts what it finds between the marks of the document, and beside it.
func docs(ctx context.Context, args []string, stderr io.Writer) error {
	table := contest.Options{Notice: stderr}
	flags := newFlags("peerbench docs", stderr)
	tableFlags(flags, &table)
	dir := flags.String("dir", "../../docs", "`directory` of performance.md")
	only := flags.String("part", "", "`part` to do: "+strings.Join(docsParts, ", ")+" (default all)")
	curves := growth.Options{Notice: stderr, For: time.Second, Rounds: 3}
	flags.Var((*words)(&curves.Works), "curves", "growth: `curves` to draw anew, with commas between: "+strings.Join(growth.Works(), ", ")+" (default all)")
	flags.IntVar(&curves.Resources, "resources", 1_000_000, "growth: the most resources")
	flags.IntVar(&curves.Waiters, "waiters", 1_000, "growth: the longest line")
	flags.IntVar(&curves.History, "history", 10_000_000, "growth: the most recorded tenures")
	flags.IntVar(&curves.Leases, "many-leases", 10_000, "growth: the most leases of one client")
	flags.DurationVar(&curves.Snapshot, "snapshot", time.Minute, "growth: how long a snapshot is held open")
	if err := parse(flags, args); err != nil {
		return err
	}
	curves.For = table.For
	if err := errors.Join(table.Check(), curves.Check()); err != nil {
		return usageError{err}
	}
	if *only != "" && !slices.Contains(docsParts, *only) {
		return usageError{fmt.Errorf("there is no part %q, only %s", *only, strings.Join(docsParts, ", "))}
	}
	document := filepath.Join(*dir, "performance.md")
	costs := profile.Options{Notice: stderr, For: min(profileFor, table.For), Rounds: profileRounds}
	write := map[string]func() error{
		"table":   func() error { return writeTable(ctx, table, document) },
		"profile": func() error { return writeProfile(ctx, costs, document) },
		"growth":  func() error { return writeCurves(ctx, curves, document, filepath.Join(*dir, "performance")) },
	}
	for _, part := range docsParts {
		if *only != "" && *only != part {
			continue
		}
		if err := write[part](); err != nil {
			return err
		}
	}
	return nil
}

// docsParts are those of the document that are measured, in the order in which they are.
var docsParts = []string{"table", "profile", "growth"}

func writeProfile(ctx context.Context, o profile.Options, document string) error {
	result, err := profile.Run(ctx, o)
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := result.Markdown(&text, 3); err != nil {
		return err
	}
	return replaceBetween(document, "profile", text.String())
}

func writeTable(ctx context.Context, o contest.Options, document string) error {
	result, err := contest.Run(ctx, o)
	if err != nil && !errors.Is(err, servers.ErrMissing) {
		return err
	}
	var text strings.Builder
	if err := result.Markdown(&text, 3); err != nil {
		return err
	}
	return errors.Join(err, replaceBetween(document, "table", text.String()))
}

// writeCurves draws curves and puts them into the document, with those in the directory that were drawn before.
func writeCurves(ctx context.Context, o growth.Options, document, dir string) error {
	if err := growth.Run(ctx, o, func(c growth.Curve) error { return c.Write(dir) }); err != nil {
		return err
	}
	curves, err := growth.Read(dir)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, c := range curves {
		fmt.Fprintf(&text, "### %s\n\n![%s](performance/%s.svg)\n\n%s\n", c.Title, c.Title, c.Name, c.Markdown())
	}
	return replaceBetween(document, "growth", text.String())
}

// replaceBetween puts text between the two marks of a document.
func replaceBetween(document, mark, text string) error {
	old, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+mark+": made by peerbench docs -->\n", "<!-- end of "+mark+" -->"
	before, rest, found := strings.Cut(string(old), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s has no place for the %s: %q and %q", document, mark, strings.TrimSpace(begin), end)
	}
	return os.WriteFile(document, []byte(before+begin+"\n"+strings.TrimSpace(text)+"\n\n"+end+after), 0o644)
}
