package reportstore_test

import (
	"crypto/sha256"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/reportstore"
)

func count(tb testing.TB, pool *pgxpool.Pool, sql string) (n int) {
	tb.Helper()
	if err := pool.QueryRow(tb.Context(), sql).Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}

func TestTriggersHoldPsqlToTheWatermark(t *testing.T) {
	t.Parallel()
	pool, store := setUp(t)
	publish(t, store, token(t, 42), "one", 0, 1)
	for _, sql := range []string{
		`UPDATE pglease.reports SET greatest_fence = 41`,
		`UPDATE pglease.reports SET greatest_fence = 41, greatest_lease_id = gen_random_uuid(), body = 'x', version = 2`,
		`UPDATE pglease.reports SET greatest_lease_id = gen_random_uuid()`,
		`UPDATE pglease.reports SET report_id = 'other', greatest_fence = 50`,
		`DELETE FROM pglease.reports`,
		`TRUNCATE pglease.reports`,
		`INSERT INTO pglease.reports AS r (report_id, greatest_fence, greatest_lease_id) VALUES ('report/2026-07', 1, gen_random_uuid())
		 ON CONFLICT (report_id) DO UPDATE SET greatest_fence = EXCLUDED.greatest_fence`,
	} {
		refused(t, pool, "PGF02", sql)
	}
	mustExec(t, pool, `UPDATE pglease.reports SET greatest_fence = 43, greatest_lease_id = gen_random_uuid()`)
	holds(t, store, "one", 1, 43)
}

func TestTriggersHoldPsqlToTheVersion(t *testing.T) {
	t.Parallel()
	pool, store := setUp(t)
	publish(t, store, token(t, 42), "one", 0, 1)
	for _, sql := range []string{
		`UPDATE pglease.reports SET body = 'x'`,
		`UPDATE pglease.reports SET body = 'x', version = 3`,
		`UPDATE pglease.reports SET version = 0`,
		`UPDATE pglease.reports SET version = NULL`,
		`UPDATE pglease.reports SET content_hash = 'x'`,
		`UPDATE pglease.reports SET written_owner_id = 'somebody else'`,
		`INSERT INTO pglease.reports (report_id, version, greatest_fence, greatest_lease_id) VALUES ('a', 2, 1, gen_random_uuid())`,
		`INSERT INTO pglease.reports (report_id, body, greatest_fence, greatest_lease_id) VALUES ('a', 'x', 1, gen_random_uuid())`,
	} {
		refused(t, pool, "PGF03", sql)
	}
	holds(t, store, "one", 1, 42)
	if n := len(history(t, store)); n != 1 {
		t.Errorf("%d versions, want 1", n)
	}
}

func TestTheRecordsDoNotChange(t *testing.T) {
	t.Parallel()
	pool, store := setUp(t)
	publish(t, store, token(t, 42), "one", 0, 1)
	publish(t, store, token(t, 42), "two", 1, 2)
	if err := store.Establish(t.Context(), token(t, 41), july); err == nil {
		t.Fatal("accepted")
	}
	for _, sql := range []string{
		`UPDATE pglease.report_version SET owner_id = 'x'`,
		`DELETE FROM pglease.report_version`,
		`TRUNCATE pglease.report_version`,
		`INSERT INTO pglease.report_version SELECT report_id, 3, body, content_hash, fence, lease_id, owner_id, greatest_fence, published_at
		 FROM pglease.report_version WHERE version = 2`,
		`UPDATE pglease.report_rejection SET owner_id = 'x'`,
		`DELETE FROM pglease.report_rejection`,
		`TRUNCATE pglease.report_rejection`,
	} {
		refused(t, pool, "PGF03", sql)
	}
	refused(t, pool, "PGF03", `SET LOCAL pglease.prune = on; UPDATE pglease.report_version SET owner_id = 'x'`)

	// Pruning is asked for by name, and takes nothing from the watermark.
	prune := `SET LOCAL pglease.prune = on; DELETE FROM pglease.report_version WHERE version < 2; DELETE FROM pglease.report_rejection`
	if _, err := pool.Exec(t.Context(), prune); err != nil {
		t.Fatal(err)
	}
	if h := history(t, store); len(h) != 1 || h[0].Number != 2 {
		t.Errorf("history %+v", h)
	}
	rejected(t, store, 0)
	holds(t, store, "two", 2, 42)
	refused(t, pool, "PGF02", `SET LOCAL pglease.prune = on; DELETE FROM pglease.reports`)
}

// The corruption that fencing prevents, by a statement that never looks at the watermark: it goes
// through, and the report's own history shows it.
func TestUnfencedUpdateShowsInTheHistory(t *testing.T) {
	t.Parallel()
	pool, store := setUp(t)
	publish(t, store, token(t, 42), "new", 0, 1)
	mustExec(t, pool, `UPDATE pglease.reports SET body = 'old', version = version + 1, content_hash = 'wrong',
		written_fence = 41, written_lease_id = $2, written_owner_id = 'W1', published_at = 'epoch' WHERE report_id = $1`,
		july, token(t, 41).LeaseID().String())
	holds(t, store, "old", 2, 42)
	h := history(t, store)
	bad := reportstore.Regressions(h)
	if len(h) != 2 || len(bad) != 1 || bad[0] != h[1] {
		t.Fatalf("history %+v, of which wrong %+v", h, bad)
	}
	v := bad[0]
	if v.Number != 2 || v.Fence != 41 || v.Owner != "W1" || v.GreatestFence != 42 || v.Hash != sha256.Sum256([]byte("old")) || v.PublishedAt.Before(h[0].PublishedAt) {
		t.Errorf("recorded %+v", v)
	}
	// The rightful owner's fence still stands, and it can repair the report.
	publish(t, store, token(t, 42), "new", 2, 3)
	if bad := reportstore.Regressions(history(t, store)); len(bad) != 1 {
		t.Errorf("of the repaired history wrong: %+v", bad)
	}
}

// A writer that names nobody leaves NULLs, which every query must be able to read.
func TestRowsOfAWriterThatNamesNobody(t *testing.T) {
	t.Parallel()
	pool, store := setUp(t)
	mustExec(t, pool, `INSERT INTO pglease.reports (report_id, body, version, greatest_fence, greatest_lease_id) VALUES ($1, 'x', 1, 5, gen_random_uuid())`, july)
	mustExec(t, pool, `UPDATE pglease.reports SET body = 'y', version = 2`)
	holds(t, store, "y", 2, 5)
	h := history(t, store)
	if len(h) != 2 || h[1].Fence != 0 || h[1].Owner != "" || len(reportstore.Regressions(h)) != 2 {
		t.Errorf("history %+v", h)
	}
	if p, err := store.ReadVersion(t.Context(), july, 1); err != nil || string(p.Body) != "x" || p.Fence != 0 {
		t.Errorf("got %+v, %v", p, err)
	}
	publish(t, store, token(t, 6), "z", 2, 3)
}
