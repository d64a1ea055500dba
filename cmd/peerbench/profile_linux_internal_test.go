package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/pglease/pglease/cmd/peerbench/internal/profile"
)

// How much each of them is is not for a test to say: the machine is shared.
func TestProfileHasAFigureForEachRow(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"profile", "--for", "10ms", "--rounds", "1", "--json"}, nil, &stdout, &stderr); code != exitDone {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	var r profile.Result
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, row := range r.Rows {
		seen[row.Work]++
		if row.Operations < 1 || row.Server <= 0 || row.ServerLow > row.Server || row.ServerHigh < row.Server {
			t.Errorf("%s: %+v", row.Title, row)
		}
		alone := row.Work == "wakeups" || row.Name == "told"
		if alone != (row.Client == nil) || alone != (row.WAL == nil) || (!alone && *row.Client <= 0) {
			t.Errorf("%s: the client's time and the WAL are %v and %v", row.Title, row.Client, row.WAL)
		}
	}
	for _, work := range profile.Works() {
		if seen[work] == 0 {
			t.Errorf("%s has no row", work)
		}
	}
	if len(r.Beside) != 11 {
		t.Errorf("%d comparisons, want 11", len(r.Beside))
	}
	var text, markdown strings.Builder
	if err := r.Text(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.Markdown(&markdown, 3); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), ". 1 round of 10 ms each") {
		t.Errorf("it does not say how it was measured:\n%s", &text)
	}
	for _, row := range r.Rows {
		if !strings.Contains(text.String(), row.Title) || !strings.Contains(markdown.String(), "| "+row.Title+" |") {
			t.Errorf("there is no line of %s", row.Title)
		}
	}
	for _, c := range r.Beside {
		if c.Ratio <= 0 || !strings.Contains(text.String(), c.Title) {
			t.Errorf("%s: ratio %v", c.Title, c.Ratio)
		}
	}
}

// A part of it has the limit, and compares what it has.
func TestProfileOfAPart(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"profile", "--for", "10ms", "--rounds", "2", "--work", "pairs"}, nil, &stdout, &stderr); code != exitDone {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	for _, want := range []string{"UPDATE of a row by its key", "TryAcquire of a free resource", "acquire and release, history off"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, &stdout)
		}
	}
	if strings.Contains(stdout.String(), "GuardedTx") {
		t.Errorf("it has what was not asked for:\n%s", &stdout)
	}
}
