//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// queuePlace is a database of the test's own with the tables of the second way, and no others.
func queuePlace(t *testing.T) (url string, pool *pgxpool.Pool) {
	t.Helper()
	url = pgleasetest.URL(t, migrations.Jobs, migrations.Report)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return url, pool
}

// enqueue asks for july and returns the answer.
func enqueue(t *testing.T, url string, args ...string) receipt {
	t.Helper()
	args = append([]string{"enqueue", "--json", "--database-url", url, "--report", july}, append(args, sampleFiles(t)...)...)
	r := call(t.Context(), nil, args...)
	if r.Code != exitOK || r.Stderr != "" {
		t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	}
	var answer receipt
	if err := json.Unmarshal([]byte(r.Stdout), &answer); err != nil {
		t.Fatalf("%s: %v", r.Stdout, err)
	}
	return answer
}

func client(t *testing.T, pool *pgxpool.Pool) *jobs.Client {
	t.Helper()
	c, err := jobs.New(pool, jobs.Config{Owner: "the test"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// One run is one job, however often it is asked for.
func TestEnqueueOnce(t *testing.T) {
	t.Parallel()
	url, pool := queuePlace(t)
	first := enqueue(t, url)
	if !first.Added || first.Run != 1 || first.Job == 0 || first.Status != "started" || first.Period != "2026-07" {
		t.Errorf("got %+v", first)
	}
	again := enqueue(t, url)
	if again.Added || again.Job != first.Job || again.State != "waiting" {
		t.Errorf("again: %+v", again)
	}
	counts, err := client(t, pool).Count(t.Context(), defaultQueue)
	if err != nil || counts.Ready+counts.Waiting != 1 {
		t.Errorf("%+v, %v", counts, err)
	}
	call(t.Context(), nil, "enqueue", "--database-url", url, "--report", july, "sample/market.csv").
		Want(t, exitOK, "report/2026-07 run 1 was asked for before, job 1 is waiting; nothing was added\n", "")
	call(t.Context(), nil, "enqueue", "--database-url", url, "--report", july, "--again", "sample/market.csv").
		Want(t, exitError, "", "run 1 of report/2026-07 is under way: job 1 is waiting\n")
	elsewhere := enqueue(t, url, "--queue", "other")
	if !elsewhere.Added || elsewhere.Run != 1 {
		t.Errorf("in another queue: %+v", elsewhere)
	}
}

// A parked job gives way to a new run, and one that is gone does not keep the run for ever.
func TestEnqueueAgain(t *testing.T) {
	t.Parallel()
	url, pool := queuePlace(t)
	c := client(t, pool)
	first := enqueue(t, url)
	if _, err := c.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	claims, err := c.Claim(t.Context(), defaultQueue, 1)
	if err != nil || len(claims) != 1 {
		t.Fatal(claims, err)
	}
	call(t.Context(), nil, "enqueue", "--database-url", url, "--report", july, "--again", "sample/market.csv").
		Want(t, exitError, "", "job 1 is running\n")
	if _, err := c.Fail(t.Context(), claims[0], jobs.Failure{Reason: "kaput", Park: true}); err != nil {
		t.Fatal(err)
	}
	if seen := enqueue(t, url); seen.State != "parked" || seen.Added {
		t.Errorf("parked: %+v", seen)
	}
	second := enqueue(t, url, "--again")
	if !second.Added || second.Run != 2 || second.Job == first.Job {
		t.Errorf("again: %+v", second)
	}
	if info, err := c.Job(t.Context(), first.Job); err != nil || info.State != jobs.Dropped {
		t.Errorf("the parked job: %+v, %v", info, err)
	}
	if _, err := pool.Exec(t.Context(), "DELETE FROM pglease.job"); err != nil {
		t.Fatal(err)
	}
	call(t.Context(), nil, "enqueue", "--database-url", url, "--report", july, "sample/market.csv").
		Want(t, exitOK, "run 2 was started and its job is gone; begin it anew with --again\n", "")
	if third := enqueue(t, url, "--again"); !third.Added || third.Run != 3 {
		t.Errorf("after the job was gone: %+v", third)
	}
}

// What is refused becomes no job, and sales that cannot be read twice are refused.
func TestEnqueueRefuses(t *testing.T) {
	t.Parallel()
	url, pool := queuePlace(t)
	broken := filepath.Join(t.TempDir(), "broken.csv")
	if err := os.WriteFile(broken, []byte(header+"corner,2026-07-32,jam,1,3.79\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	there := []string{"enqueue", "--database-url", url, "--report", july}
	call(t.Context(), nil, append(there, broken)...).Want(t, exitError, "", "is not a day of the calendar")
	call(t.Context(), nil, append(there, "missing.csv")...).Want(t, exitError, "", "missing.csv: no such file or directory\nNothing was published")
	call(t.Context(), strings.NewReader(header), append(there, "-")...).Want(t, exitError, "", "-: is not a regular file")
	call(t.Context(), nil, append(there, pipe)...).Want(t, exitError, "", "pipe: is not a regular file")
	var rows int
	const count = "SELECT (SELECT count(*) FROM pglease.job) + (SELECT count(*) FROM pglease.report_runs)"
	if err := pool.QueryRow(t.Context(), count).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows are left, %v", rows, err)
	}
}

func TestQueueWithoutTables(t *testing.T) {
	t.Parallel()
	for _, line := range []migrations.Line{migrations.Jobs, migrations.Report} {
		url := pgleasetest.URL(t, line)
		for _, args := range [][]string{{"enqueue", "--report", july, "sample/market.csv"}, {"worker"}} {
			args = append(args, "--database-url", url)
			call(t.Context(), nil, args...).Want(t, exitError, "", "Make them with: pglease migrate up --line jobs --line report\n")
		}
	}
}
