package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/cmd/pglease/internal/bench"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// What is fast or slow is not for a test to say: the machine is shared.
func TestEachWork(t *testing.T) {
	t.Parallel()
	tests := []bench.Options{{Work: "handoff", Waiters: 3}, {Work: "handoff", Waiters: 2, Processes: 1}, {Work: "handoff", Clients: 4, Processes: 1}, {Work: "handoff", Waiters: 3, DirectWake: true}, {Work: "handoff", DirectWake: true}, {Work: "pairs", NoHistory: true}}
	for _, w := range bench.Works() {
		tests = append(tests, bench.Options{Work: w.Name})
	}
	for _, o := range tests {
		t.Run(fmt.Sprintf("%s %d waiters %d processes direct %v", o.Work, o.Waiters, o.Processes, o.DirectWake), func(t *testing.T) {
			t.Parallel()
			o.URL, o.For, o.Rounds = pgleasetest.URL(t), 30*time.Millisecond, 2
			if o.Work == "renew" {
				o.Leases = 20
			} else if o.Clients == 0 && o.Waiters == 0 {
				o.Clients = 3
			}
			result, err := bench.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			checkJSON(t, result)
			checkText(t, result)
			checkDropped(t, o.URL)
		})
	}
}

func checkJSON(t *testing.T, result bench.Result) {
	t.Helper()
	text, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	positive := []string{"clients", "rate", "limit_rate", "ratio", "p50_us", "p99_us", "limit_p50_us", "limit_p99_us", "statements_per_op", "round_trips_per_op", "limit_wal_bytes_per_op"}
	if result.Also != "" {
		positive = append(positive, "also_rate", "also_ratio", "also_p50_us")
	}
	for _, name := range positive {
		if n, ok := fields[name].(float64); !ok || n <= 0 {
			t.Errorf("%s is %v", name, fields[name])
		}
	}
	if direct, ok := fields["direct_wake"].(bool); !ok || direct != result.Direct {
		t.Errorf("direct_wake is %v", fields["direct_wake"])
	}
	if wal, ok := fields["wal_bytes_per_op"].(float64); !ok || wal < 0 {
		t.Errorf("wal_bytes_per_op is %v", fields["wal_bytes_per_op"])
	}
	if result.P50 > result.P99 || result.RatioLow > result.Ratio || result.Ratio > result.RatioHigh {
		t.Errorf("out of order: %s", text)
	}
}

// What each work sends does not depend on how fast the machine is.
func TestStatements(t *testing.T) {
	t.Parallel()
	for work, want := range map[string]struct{ statements, trips float64 }{
		"pairs": {2, 2}, "refused": {1, 1}, "publish": {1, 1}, "guard": {4, 4},
	} {
		t.Run(work, func(t *testing.T) {
			t.Parallel()
			result, err := bench.Run(t.Context(), bench.Options{Work: work, URL: pgleasetest.URL(t), Clients: 1, For: 30 * time.Millisecond, Rounds: 1})
			if err != nil {
				t.Fatal(err)
			}
			if result.Statements != want.statements || result.Trips != want.trips {
				t.Errorf("%v statements in %v round trips each, want %v", result.Statements, result.Trips, want)
			}
		})
	}
}

// A client that is woken by itself waits in the server, and each of its waits there is a statement. Where all are in
// line when a release comes, as many are sent however fast the machine is.
func TestDirectWakeReachesTheClients(t *testing.T) {
	t.Parallel()
	o := bench.Options{Work: "handoff", URL: pgleasetest.URL(t), Waiters: 3, Processes: 2, For: 500 * time.Millisecond, Rounds: 1}
	told, err := bench.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.DirectWake = true
	woken, err := bench.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if woken.Statements < told.Statements+0.5 {
		t.Errorf("%v statements each where one is woken, %v where all are told", woken.Statements, told.Statements)
	}
	var text bytes.Buffer
	if err := woken.Print(&text); err != nil || !strings.HasPrefix(text.String(), "handoff: 3 waiters in 2 processes, direct wake, ") {
		t.Errorf("%v: the heading does not say how they were woken:\n%s", err, &text)
	}
}

func checkText(t *testing.T, result bench.Result) {
	t.Helper()
	var out bytes.Buffer
	if err := result.Print(&out); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if utf8.RuneCountInString(line) > 81 {
			t.Errorf("a line is longer than 80 columns: %s", line)
		}
	}
	if !strings.HasPrefix(out.String(), result.Work+": ") || !strings.Contains(out.String(), "\nratio to the limit ") {
		t.Errorf("unexpected text:\n%s", &out)
	}
}

func checkDropped(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var left int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pglease_bench%'").Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Errorf("%d schemas are left", left)
	}
}

// A run that is interrupted drops its schema too.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, o := range []bench.Options{{Work: "pairs"}, {Work: "handoff"}, {Work: "handoff", Waiters: 5}, {Work: "renew", Leases: 10}} {
		t.Run(fmt.Sprintf("%s %d waiters %d processes", o.Work, o.Waiters, o.Processes), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
			defer cancel()
			o.URL, o.For, o.Rounds = pgleasetest.URL(t), time.Minute, 1
			_, err := bench.Run(ctx, o)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the error is %v", err)
			}
			checkDropped(t, o.URL)
		})
	}
}

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]bench.Options{
		`there is no work "sleep"`:   {Work: "sleep"},
		"clients -1":                 {Work: "pairs", Clients: -1},
		"clients 1001":               {Work: "pairs", Clients: 1001},
		"rounds -1":                  {Work: "pairs", Rounds: -1},
		"for -1s":                    {Work: "pairs", For: -time.Second},
		"waiters are for handoff":    {Work: "pairs", Waiters: 1},
		"leases are for renew":       {Work: "pairs", Leases: 1},
		"processes are for handoff":  {Work: "pairs", Processes: 1},
		"direct wake is for handoff": {Work: "renew", DirectWake: true},
		"clients or waiters":         {Work: "handoff", Clients: 1, Waiters: 1},
		"renew is the work of one":   {Work: "renew", Clients: 2},
		"leases 100001 is not":       {Work: "renew", Leases: 100_001},
		"waiters 10001 is not betwe": {Work: "handoff", Waiters: 10_001},
		"cannot parse":               {Work: "pairs", URL: "nonsense"},
	} {
		_, err := bench.Run(t.Context(), o)
		if !errors.Is(err, bench.ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}
