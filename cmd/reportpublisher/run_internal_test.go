package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/pglease/pglease/internal/commandtest"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// asProcess is the worker as a process; set where processes can be frozen.
var asProcess func() int

// TestMain is also the program that tests start as the demo and as workers, and that the demo starts
// again as its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		os.Exit(asProcess())
	}
	if len(os.Args) > 1 && (os.Args[1] == workerName || os.Args[1] == "demo") {
		main()
	}
	pgleasetest.Main(m)
}

// call runs the command with an input and its words.
func call(ctx context.Context, stdin io.Reader, args ...string) commandtest.Result {
	return commandtest.Command(run).Call(ctx, stdin, args...)
}

func TestWrongCalls(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"nonsense":                              `unknown command "nonsense"`,
		"--nonsense":                            "unknown flag: --nonsense",
		"publish":                               "requires at least 1 arg",
		"publish a.csv":                         "--report is missing",
		"publish --report r":                    "requires at least 1 arg",
		"publish --report report/2026-13 a.csv": "the report's name must end in its month, as in report/2026-07",
		"publish --report report/2026-07 --ttl x a.csv":          "invalid argument",
		"publish --report report/2026-07 --database-url ! a.csv": "cannot parse",
		"publish --report report/2026-07 --wait 0s a.csv":        "--wait is not positive",
		"read":                         "--report is missing",
		"read --report r r":            `unknown command "r"`,
		"read --report r --version -1": "--version is negative",
		"history":                      "--report is missing",
		"enqueue":                      "requires at least 1 arg",
		"enqueue a.csv":                "--report is missing",
		"enqueue --report r a.csv":     "the report's name must end in its month",
		"enqueue --report report/2026-07 --queue a/b a.csv":      "contains a slash",
		"enqueue --report report/2026-07 --database-url ! a.csv": "cannot parse",
		"worker now":      `unknown command "now"`,
		"worker --ttl x":  "invalid argument",
		"demo --ttl 10ms": "--ttl is not between 1s and 20s",
		"demo now":        `unknown command "now"`,
		workerName:        "accepts 1 arg",
		workerName + " {": "unexpected end of JSON input",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			call(t.Context(), nil, strings.Fields(args)...).Want(t, exitUsage, "", want)
		})
	}
}

func TestHelpFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--help"}, {"publish", "--help"}, {"read", "--help"}, {"history", "--help"}, {"enqueue", "--help"}, {"worker", "--help"}, {"demo", "--help"}} {
		r := call(t.Context(), nil, args...)
		r.Want(t, exitOK, "reportpublisher", "")
		for line := range strings.Lines(r.Stdout) {
			if line = strings.TrimSuffix(line, "\n"); len(line) > 80 && !strings.Contains(line, "  --") {
				t.Errorf("%v: %d columns: %s", args, len(line), line)
			}
		}
	}
}

// The flag beats our own variable, that beats DATABASE_URL, and without any pgx reads PGHOST.
func TestGivenURL(t *testing.T) { //nolint:paralleltest // it sets variables
	for _, c := range []struct{ flag, ours, common, want string }{
		{"f", "o", "c", "f"},
		{"", "o", "c", "o"},
		{"", "", "c", "c"},
		{"", "", "", ""},
	} {
		t.Setenv(urlVariable, c.ours)
		t.Setenv("DATABASE_URL", c.common)
		if got := givenURL(c.flag); got != c.want {
			t.Errorf("flag %q, ours %q, common %q: %q, want %q", c.flag, c.ours, c.common, got, c.want)
		}
	}
}

// Whoever asked did not get the answer: that is no success, whatever was asked.
func TestOutputThatFails(t *testing.T) {
	t.Parallel()
	url, _ := place(t)
	there := []string{"--database-url", url, "--report", july}
	for _, args := range [][]string{
		{},
		{"--help"},
		{"publish", "--dry-run", "--report", july, "sample/market.csv"},
		append([]string{"publish", "sample/market.csv"}, there...),
		append([]string{"read"}, there...),
		append([]string{"history"}, there...),
		append([]string{"history", "--json"}, there...),
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), args, nil, commandtest.Full{}, &stderr); code != exitError {
			t.Errorf("%v: exit code %d, stderr %q", args, code, stderr.String())
		}
		if n := strings.Count(stderr.String(), syscall.ENOSPC.Error()); n != 1 {
			t.Errorf("%v: it tells %d times of the output: %s", args, n, stderr.String())
		}
	}
	call(t.Context(), nil, append([]string{"read"}, there...)...).Want(t, exitOK, "2026-07,total", "")
}
