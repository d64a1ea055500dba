package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pglease/pglease/migrations"
)

// A file is one that another migration tool reads. It holds the way up, the way down or both.
type file struct {
	name     string
	up, down string // the parts, each by itself
	between  string // what separates them
}

// text is the whole file.
func (f file) text() string { return f.up + f.between + f.down }

type printer struct {
	*migrate
	format string
	dir    string
	start  uint
	after  uint
	down   bool
}

func (m *migrate) print() *cobra.Command {
	p := &printer{migrate: m}
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the SQL for another migration tool",
		Long: `Print the SQL for those who have their own migration tool, as files for
golang-migrate, goose (v3) or tern (v2). It needs no database.

With --dir it writes the files. Without, it prints to the standard output what can
be piped into psql: of all files the way up alone, or with --down the way down
alone, the last migration first, which destroys the tables.

The files are numbered from --start on, so that they fit behind those you have.
After an upgrade, --after prints only what is new.`,
		Example: "  pglease migrate print --format goose --start 20 --dir db/migrations",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if p.down && p.dir != "" {
				return usagef("--down is for the standard output; files hold both ways")
			}
			files, err := p.files()
			if err != nil {
				return err
			}
			if p.dir == "" {
				return show(cmd.OutOrStdout(), files, p.down)
			}
			return write(cmd.OutOrStdout(), p.dir, files)
		},
	}
	cmd.Flags().StringVar(&p.format, "format", "golang-migrate", "golang-migrate, goose or tern")
	cmd.Flags().StringVar(&p.dir, "dir", "", "write files into this directory, and overwrite none (default: print the way up to standard output)")
	cmd.Flags().UintVar(&p.start, "start", 1, "number of the first file")
	cmd.Flags().UintVar(&p.after, "after", 0, "only migrations of the line behind this version")
	cmd.Flags().BoolVar(&p.down, "down", false, "print the way down instead of the way up")
	return cmd
}

// files returns the files in the order of their numbers.
func (p *printer) files() ([]file, error) {
	render, known := map[string]func(uint, string, migrations.Migration) []file{
		"golang-migrate": golangMigrateFiles, "goose": gooseFiles, "tern": ternFiles,
	}[p.format]
	if !known {
		return nil, usagef("there is no format %q, only golang-migrate, goose and tern", p.format)
	}
	lines, err := p.lines()
	if err != nil {
		return nil, err
	}
	if p.after > 0 && len(lines) != 1 {
		return nil, usagef("--after works on one line")
	}
	var files []file
	number := p.start
	for _, line := range lines {
		all, err := migrations.All(line, p.schema)
		if err != nil {
			return nil, usageError{err}
		}
		for i, migration := range all {
			if migration.Version <= p.after {
				continue
			}
			if i == 0 {
				migration.Up = p.createSchema() + migration.Up
			}
			files = append(files, render(number, "pglease_"+string(line)+"_"+migration.Name, migration)...)
			number++
		}
	}
	return files, nil
}

// createSchema goes before the first migration of each line. Nothing drops the schema: who made it
// is not known to another tool, and its own table may be in there.
func (p *printer) createSchema() string {
	name := p.schema
	if name == "" {
		name = migrations.DefaultSchema
	}
	return "CREATE SCHEMA IF NOT EXISTS " + pgx.Identifier{name}.Sanitize() + ";\n\n"
}

func golangMigrateFiles(number uint, name string, m migrations.Migration) []file {
	return []file{
		{name: fmt.Sprintf("%06d_%s.up.sql", number, name), up: m.Up},
		{name: fmt.Sprintf("%06d_%s.down.sql", number, name), down: m.Down},
	}
}

// gooseFiles keeps each direction one statement in goose's sense, for it would cut function bodies
// at their semicolons.
func gooseFiles(number uint, name string, m migrations.Migration) []file {
	const begin, end = "-- +goose StatementBegin\n", "-- +goose StatementEnd\n"
	return []file{{
		name:    fmt.Sprintf("%05d_%s.sql", number, name),
		up:      "-- +goose Up\n" + begin + m.Up + end,
		between: "\n",
		down:    "-- +goose Down\n" + begin + m.Down + end,
	}}
}

func ternFiles(number uint, name string, m migrations.Migration) []file {
	return []file{{
		name:    fmt.Sprintf("%03d_%s.sql", number, name),
		up:      m.Up,
		between: "\n---- create above / drop below ----\n\n",
		down:    m.Down,
	}}
}

// show prints one way: both in one stream would create the tables and drop them again.
func show(out io.Writer, files []file, down bool) error {
	if down {
		slices.Reverse(files)
	}
	separator := ""
	for _, f := range files {
		text := f.up
		if down {
			text = f.down
		}
		if text == "" {
			continue
		}
		if _, err := fmt.Fprintf(out, "%s-- file: %s\n%s", separator, f.name, text); err != nil {
			return err
		}
		separator = "\n"
	}
	return nil
}

// write makes the files. One that is there with the same text is left alone, one with another
// text is an error, and then nothing is written.
func write(out io.Writer, dir string, files []file) error {
	var missing []file
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		there, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, f)
		case err != nil:
			return err
		case string(there) != f.text():
			return fmt.Errorf("%s is there with another text", path)
		}
	}
	if len(missing) == 0 {
		fmt.Fprintln(out, "nothing to do")
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range missing {
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path, []byte(f.text()), 0o644); err != nil {
			return err
		}
		fmt.Fprintln(out, strings.TrimPrefix(path, "./"))
	}
	return nil
}
