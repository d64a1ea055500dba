package main

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestMain(m *testing.M) { pgleasetest.Main(m) }

// A result is what a call of the command came to.
type result struct {
	code           int
	stdout, stderr string
}

// call runs the command with its words and an input.
func call(ctx context.Context, stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, strings.NewReader(stdin), &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// want holds a result to a code and to what it must contain. An empty word means empty output.
func (r result) want(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if r.code != code || !has(r.stdout, stdout) || !has(r.stderr, stderr) {
		t.Errorf("exit code %d, want %d\nstdout: %s\nwant:   %s\nstderr: %s\nwant:   %s",
			r.code, code, r.stdout, stdout, r.stderr, stderr)
	}
}

func has(text, word string) bool {
	if word == "" {
		return text == ""
	}
	return strings.Contains(text, word)
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
			call(t.Context(), "", strings.Fields(args)...).want(t, exitUsage, "", want)
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"", "version", "migrate", "migrate up", "migrate down", "migrate version", "migrate force", "migrate print"} {
		r := call(t.Context(), "", append(strings.Fields(args), "--help")...)
		r.want(t, exitDone, "Usage:\n  pglease "+args, "")
		for line := range strings.Lines(r.stdout) {
			if len(line) > 130 {
				t.Errorf("help of %q has a line of %d characters: %s", args, len(line), line)
			}
		}
	}
	call(t.Context(), "", "version").want(t, exitDone, "migrations of line lease: up to ", "")
	call(t.Context(), "", "completion", "bash").want(t, exitDone, "__start_pglease", "")
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
		r.want(t, exitError, "", "user="+step.user+" ")
		if strings.Contains(r.stderr, "s3cret") {
			t.Errorf("the error tells the password: %s", r.stderr)
		}
	}
}

// full is a standard output that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

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
		if code := run(t.Context(), call, strings.NewReader(""), full{}, &stderr); code != exitError {
			t.Errorf("%s: exit code %d, stderr %q", args, code, stderr.String())
		}
		if n := strings.Count(stderr.String(), syscall.ENOSPC.Error()); n != 1 || strings.Contains(stderr.String(), "--help") {
			t.Errorf("%s: it tells %d times of the output: %s", args, n, stderr.String())
		}
	}
	s.call("", "migrate version").want(t, exitDone, "version 0", "")
}
