package main

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/pglease/pglease/internal/commandtest"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestMain(m *testing.M) { pgleasetest.Main(m) }

// call runs the command with an input and its words.
func call(ctx context.Context, stdin string, args ...string) commandtest.Result {
	return commandtest.Command(run).Call(ctx, strings.NewReader(stdin), args...)
}

func TestWrongCalls(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                                   "needs one of its commands",
		"nonsense":                           `unknown command "nonsense"`,
		"--nonsense":                         "unknown flag: --nonsense",
		"version now":                        `unknown command "now"`,
		"migrate":                            "needs one of its commands",
		"migrate sideways":                   `unknown command "sideways"`,
		"migrate up now":                     `unknown command "now"`,
		"migrate up --line nonsense":         `there is no line "nonsense"`,
		"migrate up --line=":                 "no line was named",
		"migrate up --schema pg_mine":        "reserves the prefix pg_",
		"migrate up --database-url nonsense": "cannot parse",
		"migrate force":                      "VERSION is missing",
		"migrate force one":                  `"one" is not a version`,
		"migrate force -1":                   "VERSION is a number from 1 on, or 0 for none",
		"migrate force -- -1":                `"-1" is not a version: a number from 1 on, or 0 for none`,
		"migrate force 1 2":                  "2 arguments where VERSION alone is taken",
		"migrate force -- -1 --schema ops":   `3 arguments where VERSION alone is taken, a number from 1 on, or 0 for none; behind "--" nothing is read as a flag`,
		"migrate up -- --schema ops":         `"pglease migrate up" takes no arguments; behind "--" nothing is read as a flag`,
		"migrate print --down --dir x":       "--down is for the standard output",
		"migrate force 1 --line all":         "force works on one line",
		"migrate print --format nonsense":    `there is no format "nonsense"`,
		"migrate print --after 1 --line all": "--after works on one line",
		"migrate print --schema a$$b":        "may not contain",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			call(t.Context(), "", strings.Fields(args)...).Want(t, exitUsage, "", want)
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"", "version", "migrate", "migrate up", "migrate down", "migrate version", "migrate force", "migrate print"} {
		r := call(t.Context(), "", append(strings.Fields(args), "--help")...)
		r.Want(t, exitDone, "Usage:\n  pglease "+args, "")
		for line := range strings.Lines(r.Stdout) {
			if len(line) > 130 {
				t.Errorf("help of %q has a line of %d characters: %s", args, len(line), line)
			}
		}
	}
	call(t.Context(), "", "version").Want(t, exitDone, "migrations of line lease: up to ", "")
	call(t.Context(), "", "completion", "bash").Want(t, exitDone, "__start_pglease", "")
}

// The flag wins over our variable, that over the usual one, and that over psql's.
func TestWhichDatabase(t *testing.T) {
	for _, name := range []string{"PGSERVICE", "PGPASSFILE", "PGPORT", "PGDATABASE"} {
		t.Setenv(name, "")
	}
	t.Setenv("PGHOST", "127.0.0.1")
	t.Setenv("PGUSER", "by_pg")
	t.Setenv("PGPORT", "1")
	args := []string{"migrate", "version"}
	steps := []struct{ variable, user string }{
		{"", "by_pg"}, {"DATABASE_URL", "by_url"}, {"PGLEASE_DATABASE_URL", "by_ours"}, {"flag", "by_flag"},
	}
	t.Setenv("DATABASE_URL", "")
	t.Setenv("PGLEASE_DATABASE_URL", "")
	for _, step := range steps {
		url := "postgres://" + step.user + ":s3cret@127.0.0.1:1/db"
		switch step.variable {
		case "":
		case "flag":
			args = append(args, "--database-url", url)
		default:
			t.Setenv(step.variable, url)
		}
		r := call(t.Context(), "", args...)
		r.Want(t, exitError, "", "user="+step.user+" ")
		if strings.Contains(r.Stderr, "s3cret") {
			t.Errorf("the error tells the password: %s", r.Stderr)
		}
	}
}

// Whoever asked did not get the answer: that is no success, whatever was asked.
func TestOutputThatFails(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for _, args := range []string{
		"version", "--help", "migrate --help", "completion bash", "migrate print", "migrate print --dir " + t.TempDir(),
		"migrate version", "migrate up", "migrate force 1", "migrate down --yes", "migrate down",
	} {
		var stderr bytes.Buffer
		call := append(strings.Fields(args), s.args...)
		if code := run(t.Context(), call, strings.NewReader(""), commandtest.Full{}, &stderr); code != exitError {
			t.Errorf("%s: exit code %d, stderr %q", args, code, stderr.String())
		}
		if n := strings.Count(stderr.String(), syscall.ENOSPC.Error()); n != 1 || strings.Contains(stderr.String(), "--help") {
			t.Errorf("%s: it tells %d times of the output: %s", args, n, stderr.String())
		}
	}
	s.call("", "migrate version").Want(t, exitDone, "version 0", "")
}
