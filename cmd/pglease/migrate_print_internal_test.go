package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pglease/pglease/internal/catalogue"
	"github.com/pglease/pglease/migrations"
)

// Module internal/migrationtools has the tools themselves apply what is printed. Here it is cut
// apart as they do it.
func TestPrintedFilesRun(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"golang-migrate", "goose", "tern"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			s.call("", "migrate up --line all").Want(t, exitDone, "applied", "")
			want := s.dump()
			s.call("", "migrate down --line all --yes").Want(t, exitDone, "reverted", "")

			dir := t.TempDir()
			s.call("", "migrate print --line all --format "+format+" --dir "+dir).Want(t, exitDone, dir, "")
			ups, downs := parts(t, format, dir)
			for range 2 {
				for _, sql := range ups {
					s.execute(sql)
				}
				if got := s.dump(); got != want {
					t.Errorf("printed files made another catalogue:\n%s", catalogue.Differences(want, got))
				}
				for _, sql := range downs {
					s.execute(sql)
				}
			}
		})
	}
}

func (s session) dump() string {
	s.t.Helper()
	text, err := catalogue.Dump(s.t.Context(), s.pool, "ops", "migrations_")
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

// parts returns what is to be run up and down, each in its order.
func parts(t *testing.T, format, dir string) (ups, downs []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.sql"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths { // Glob sorts
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := string(content)
		separator := map[string]string{"goose": "-- +goose Down\n", "tern": "\n---- create above / drop below ----\n"}[format]
		switch {
		case strings.HasSuffix(path, ".up.sql"):
			ups = append(ups, text)
		case strings.HasSuffix(path, ".down.sql"):
			downs = append(downs, text)
		default:
			up, down, found := strings.Cut(text, separator)
			if !found {
				t.Fatalf("%s has no %q", path, separator)
			}
			ups, downs = append(ups, up), append(downs, down)
		}
	}
	slices.Reverse(downs)
	return ups, downs
}

// What is printed can be piped into psql: it makes the tables, and only --down drops them.
func TestPrintedTextCanBePiped(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"golang-migrate", "goose", "tern"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			s.call("", "migrate up --line all").Want(t, exitDone, "applied", "")
			want := s.dump()
			s.call("", "migrate down --line all --yes").Want(t, exitDone, "reverted", "")
			printed := "migrate print --line all --format " + format
			s.execute(s.call("", printed).Stdout)
			if got := s.dump(); got != want {
				t.Errorf("the printed text made another catalogue:\n%s", catalogue.Differences(want, got))
			}
			s.execute(s.call("", printed+" --down").Stdout)
			s.execute("DROP SCHEMA ops") // which is empty
		})
	}
}

func TestPrintNames(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"golang-migrate": "-- file: 000041_pglease_lease_authority.up.sql\nCREATE SCHEMA IF NOT EXISTS \"pglease\";\n",
		"goose":          "-- file: 00041_pglease_lease_authority.sql\n-- +goose Up\n-- +goose StatementBegin\nCREATE SCHEMA",
		"tern":           "-- file: 041_pglease_lease_authority.sql\nCREATE SCHEMA",
	} {
		r := call(t.Context(), "", "migrate", "print", "--format", format, "--start", "41")
		r.Want(t, exitDone, want, "")
	}
	// The number goes on over the lines, so that one directory holds them all.
	r := call(t.Context(), "", "migrate", "print", "--line", "all")
	for n, line := range strings.Split(r.Stdout, "-- file: ")[1:] {
		if want := n + 1; !strings.HasPrefix(line, fmt.Sprintf("%06d_", want)) {
			t.Errorf("file %d is %.40s", n, line)
		}
	}
	// After an upgrade nothing is printed that was printed before.
	latest := migrations.Latest(migrations.Lease)
	if r := call(t.Context(), "", "migrate", "print", "--after", fmt.Sprint(latest)); r.Stdout != "" || r.Code != exitDone {
		t.Errorf("code %d: %s", r.Code, r.Stdout)
	}
}

func TestPrintOverwritesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	args := []string{"migrate", "print", "--format", "tern", "--dir", dir}
	call(t.Context(), "", args...).Want(t, exitDone, "001_pglease_lease_authority.sql\n", "")
	call(t.Context(), "", args...).Want(t, exitDone, "nothing to do\n", "")
	path := filepath.Join(dir, "001_pglease_lease_authority.sql")
	if err := os.WriteFile(path, []byte("-- mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	call(t.Context(), "", args...).Want(t, exitError, "", path+" is there with another text\n")
	if text, err := os.ReadFile(path); err != nil || string(text) != "-- mine\n" {
		t.Errorf("it was overwritten: %q, %v", text, err)
	}
}
