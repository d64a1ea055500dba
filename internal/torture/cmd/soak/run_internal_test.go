//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/pglease/pglease/internal/torture"
	"github.com/pglease/pglease/internal/torture/worker"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(worker.Main(os.Stdin, os.Stderr))
	}
	pgleasetest.Main(m)
}

func TestWrongUseIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--plant", "no_such_bug"}, {"--for", "soon"}, {"--for", "1s", "--dir", "/does/not/exist"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs); code != 2 || errs.Len() == 0 {
			t.Errorf("%q: exit code %d, and said %q", args, code, errs.String())
		}
	}
}

// TestAViolationIsShown: it is told by the exit code, with a slice, and the history is kept.
func TestAViolationIsShown(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	args := []string{"--for", "1m", "--leg", "4s", "--seed", "3", "--plant", "compared_the_wrong_way", "--dir", t.TempDir()}
	if code := run(t.Context(), append(args, "--json"), &out, t.Output()); code != 1 {
		t.Errorf("exit code %d", code)
	}
	var report torture.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if report.Planted != "compared_the_wrong_way" || report.Seed != 3 || len(report.Violations) == 0 {
		t.Fatalf("report: %s", out.String())
	}
	if _, err := os.Stat(report.History); err != nil {
		t.Error(err)
	}
	var text strings.Builder
	report.Print(&text)
	for _, want := range []string{report.History, report.Violations[0].Text, `"resource":"leg`, "process stopped"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
}
