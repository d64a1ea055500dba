package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestBench(t *testing.T) {
	t.Parallel()
	args := strings.Fields("bench pairs --clients 2 --for 30ms --rounds 1 --history off --database-url")
	args = append(args, pgleasetest.URL(t))
	call(t.Context(), "", args...).Want(t, exitDone, "ratio to the limit ", "schema pglease_bench_")

	r := call(t.Context(), "", append(args, "--json")...)
	r.Want(t, exitDone, `"work":"pairs"`, "schema pglease_bench_")
	var result struct {
		Rate    float64 `json:"rate"`
		History bool    `json:"history"`
	}
	if err := json.Unmarshal([]byte(r.Stdout), &result); err != nil || result.Rate <= 0 || result.History {
		t.Errorf("%v: %s", err, r.Stdout)
	}
}

// With no database named it starts one. It says which, and that it is durable.
func TestBenchStartsADatabase(t *testing.T) {
	for _, name := range []string{"PGLEASE_DATABASE_URL", "DATABASE_URL", "PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"} {
		t.Setenv(name, "")
	}
	r := call(t.Context(), "", strings.Fields("bench refused --clients 1 --for 30ms --rounds 1 --json")...)
	r.Want(t, exitDone, `"durable":true`, " started from ")
	t.Setenv("PGHOST", "127.0.0.1")
	t.Setenv("PGPORT", "1")
	call(t.Context(), "", "bench", "refused").Want(t, exitError, "", "the Postgres that was given: ")
}

func TestBenchWrongCalls(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                                "accepts 1 arg",
		"sleep":                           `there is no work "sleep", only pairs, `,
		"pairs --clients many":            "invalid argument",
		"pairs --waiters 3":               "waiters are for handoff",
		"pairs --direct-wake":             "direct wake is for handoff",
		"pairs --history maybe":           "--history is on or off",
		"pairs --schema mine":             "a schema of its own",
		"pairs --database-url nonsense":   "cannot parse",
		"renew --clients 2 --leases 1000": "renew is the work of one client",
	} {
		call(t.Context(), "", strings.Fields("bench "+args)...).Want(t, exitUsage, "", want)
	}
}

func TestBenchHelp(t *testing.T) {
	t.Parallel()
	r := call(t.Context(), "", "bench", "--help")
	r.Want(t, exitDone, "Usage:\n  pglease bench WORK", "")
	for line := range strings.Lines(r.Stdout) {
		if len(line) > 81 {
			t.Errorf("a line is longer than 80 columns: %s", line)
		}
	}
}
