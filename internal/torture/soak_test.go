//go:build linux

package torture_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/torture"
	"github.com/pglease/pglease/internal/torture/check"
	"github.com/pglease/pglease/internal/torture/history"
	"github.com/pglease/pglease/internal/torture/mutant"
)

// TestSoak runs a few seconds under all faults: nothing is found, though callers repeat what they do not
// know the outcome of, a place in line too, and the sessions of half of the processes are woken alone.
func TestSoak(t *testing.T) {
	t.Parallel()
	length := 20 * time.Second
	if testing.Short() {
		length = 5 * time.Second
	}
	dir := t.TempDir()
	report, err := torture.Run(t.Context(), torture.Options{
		For: length, Leg: length / 2, Seed: 20260701, Crashes: 2 * time.Second, Worker: again, Dir: dir, Log: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	report.Print(t.Output())
	if len(report.Violations) > 0 {
		t.Error("a promise was broken, see above")
	}
	if report.Legs != 2 || report.Grants == 0 || report.Accepted == 0 || report.FaultCount == 0 || report.Calls["release ok"] == 0 {
		t.Errorf("too little happened to prove anything: %+v", report)
	}
	for _, end := range []history.WaitEnd{history.Roused, history.Slept} {
		if report.Calls["wait in the server "+string(end)] == 0 {
			t.Errorf("no wait in the server %s: nobody's session is woken alone", end)
		}
	}
	for _, call := range []string{history.Acquire, history.TryAcquire} {
		n := repeated(t, dir, call)
		if n == 0 {
			t.Errorf("no %s was made again", call)
		}
		t.Logf("%s was made again %d times", call, n)
	}
}

// repeated counts the calls of a kind that workers made again under the same request.
func repeated(t *testing.T, dir, call string) (again int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "leg*", "leg*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, path := range paths {
		calls, err := history.ReadCalls(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range calls {
			if c.Call != call || c.Request == "" {
				continue
			}
			if seen[c.Request] {
				again++
			}
			seen[c.Request] = true
		}
	}
	return again
}

// TestPlantedBugsAreFound: each bug, by each checker that is for it, within two minutes.
func TestPlantedBugsAreFound(t *testing.T) {
	t.Parallel()
	leg := 10 * time.Second
	if testing.Short() {
		leg = 6 * time.Second
	}
	servers, err := torture.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := servers.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, m := range mutant.All {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			report, err := torture.Run(t.Context(), torture.Options{
				For: 2 * time.Minute, Leg: leg, Seed: 7, Planted: m, Only: m.Only,
				Workers: 4, Resources: 8, TTL: 500 * time.Millisecond, Faults: 80 * time.Millisecond, Crashes: time.Second, Careless: 0.6,
				Worker: again, On: servers, Dir: dir, Log: t.Output(),
			})
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]bool{}
			for _, v := range report.Violations {
				found[v.Checker] = true
				t.Logf("%s: %s", v.Checker, v.Text)
				if len(v.Slice) == 0 {
					t.Errorf("%s shows nothing", v.Checker)
				}
			}
			for _, checker := range m.Finds {
				if !found[checker] {
					t.Errorf("%s: %s; it survived: %s did not find it", m.Name, m.Tells, checker)
				}
			}
			wantFoundAgain(t, report)
		})
	}
}

// wantFoundAgain checks the history that was kept, as somebody does who looks into a violation.
func wantFoundAgain(t *testing.T, report torture.Report) {
	t.Helper()
	if report.History == "" {
		t.Error("no history was kept")
		return
	}
	h, err := history.Load(filepath.Clean(report.History))
	if err != nil {
		t.Fatal(err)
	}
	if again := check.All(h).Violations; len(again) == 0 {
		t.Error("the history that was kept shows no violation")
	}
}
