package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

const july = "report/2026-07"

// place is a migrated database of the test's own: its URL, and a pool on it.
func place(t *testing.T) (url string, pool *pgxpool.Pool) {
	t.Helper()
	url = pgleasetest.URL(t, migrations.Report)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return url, pool
}

func sampleFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("sample/*.csv")
	if err != nil || len(files) != 3 {
		t.Fatalf("sample files %q, %v, want 3", files, err)
	}
	return files
}

func golden(t *testing.T) string {
	t.Helper()
	want, err := os.ReadFile("testdata/sample.want.csv")
	if err != nil {
		t.Fatal(err)
	}
	return string(want)
}

func TestPublishReadHistory(t *testing.T) {
	t.Parallel()
	url, _ := place(t)
	publish := append([]string{"publish", "--database-url", url, "--report", july, "--owner", "night job"}, sampleFiles(t)...)
	call(t.Context(), nil, publish...).Want(t, exitOK, "published report/2026-07 version 1 under fence ", "")
	read := []string{"read", "--database-url", url, "--report", july}
	if r := call(t.Context(), nil, read...); r.Stdout != golden(t) {
		t.Errorf("report:\n%s\nwant:\n%s", r.Stdout, golden(t))
	}

	again := []string{"publish", "--database-url", url, "--report", july, "sample/market.csv", "-"}
	call(t.Context(), strings.NewReader(header+"corner,2026-07-31,jam-plum,1,3.79\n"), again...).
		Want(t, exitOK, "published report/2026-07 version 2 under fence ", "")
	call(t.Context(), nil, read...).Want(t, exitOK, "2026-07,store,corner,1.0,3.79\n2026-07,store,market,", "")
	if r := call(t.Context(), nil, append(read, "--version", "1")...); r.Stdout != golden(t) {
		t.Errorf("version 1:\n%s\nwant:\n%s", r.Stdout, golden(t))
	}
	call(t.Context(), nil, append(read, "--version", "99")...).Want(t, exitError, "", "version 99 not found, the report is at version 2\n")
	unknown := []string{"read", "--database-url", url, "--report", "report/2026-06"}
	call(t.Context(), nil, unknown...).Want(t, exitError, "", "report not found")
	call(t.Context(), nil, append(unknown, "--version", "1")...).Want(t, exitError, "", "report not found")

	history := []string{"history", "--database-url", url, "--report", july}
	call(t.Context(), nil, history...).Want(t, exitOK, fmt.Sprintf("/%d  ", os.Getpid()), "")
	var doc struct {
		Versions, Rejections []struct {
			Version, Fence int64
			By             string
		}
	}
	if err := json.Unmarshal([]byte(call(t.Context(), nil, append(history, "--json")...).Stdout), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Versions) != 2 || len(doc.Rejections) != 0 || doc.Versions[0].By != "night job" || doc.Versions[0].Fence >= doc.Versions[1].Fence {
		t.Errorf("history %+v", doc)
	}
}

const header = "store,date,sku,quantity,unit_price\n"

func TestPublishDryRun(t *testing.T) {
	t.Parallel()
	args := append([]string{"publish", "--dry-run", "--report", july}, sampleFiles(t)...)
	if r := call(t.Context(), nil, args...); r.Code != exitOK || r.Stdout != golden(t) || r.Stderr != "" {
		t.Errorf("exit code %d, report:\n%s%s\nwant:\n%s", r.Code, r.Stdout, r.Stderr, golden(t))
	}
}

func TestPublishRefusesMalformedInput(t *testing.T) {
	t.Parallel()
	url, pool := place(t)
	args := append([]string{"publish", "--database-url", url, "--report", july, "-"}, sampleFiles(t)...)
	call(t.Context(), strings.NewReader(header+"corner,2026-07-32,jam,1,3.79\n"), args...).Want(t, exitError, "",
		`(standard input):2: date "2026-07-32" is not a day of the calendar, want YYYY-MM-DD`+"\nNothing was published")
	call(t.Context(), nil, "read", "--database-url", url, "--report", july).Want(t, exitError, "", "report not found")
	call(t.Context(), nil, "publish", "--database-url", url, "--report", "report/2026-08", "sample/market.csv").Want(t, exitError, "",
		"sample/market.csv:21: date 2026-07-11 is not in 2026-08, the month of the report\nThere may be more. Nothing was published")
	call(t.Context(), nil, "publish", "--database-url", url, "--report", july, "missing.csv", "sample").Want(t, exitError, "",
		"missing.csv: no such file or directory\nsample: is a directory, want a file\nNothing was published")
	var held int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pglease.resource_lease WHERE ended_at IS NULL").Scan(&held); err != nil || held != 0 {
		t.Errorf("%d leases are left, %v", held, err)
	}
}

func TestPublishWithoutTables(t *testing.T) {
	t.Parallel()
	leasesOnly := pgleasetest.URL(t)
	const command = "Make them with: pglease migrate up --line lease --line report"
	for _, args := range [][]string{
		{"publish", "--database-url", leasesOnly, "--report", july, "sample/market.csv"},
		{"read", "--database-url", leasesOnly, "--report", july},
		{"history", "--database-url", leasesOnly, "--report", july},
	} {
		call(t.Context(), nil, args...).Want(t, exitError, "", command+"\n")
		call(t.Context(), nil, append(args, "--schema", "else where")...).Want(t, exitError, "", command+` --schema 'else where'`)
	}
}

func TestPublishWaitsNoLongerThanAsked(t *testing.T) {
	t.Parallel()
	url, pool := place(t)
	holder(t, pool, "the other")
	call(t.Context(), nil, "publish", "--database-url", url, "--report", july, "--wait", "1ms", "sample/market.csv").
		Want(t, exitError, "", "waited 1ms for the lease: ")
}

// holder acquires the report's lease as another publisher, for as long as the test runs.
func holder(t *testing.T, pool *pgxpool.Pool, owner string) *pglease.Lease {
	t.Helper()
	client, err := pglease.New(t.Context(), pool, pglease.Config{Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	lease, err := client.TryAcquire(t.Context(), july)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}
