package plans_test

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// neverAnalyzed is a database of which the planner knows nothing but the sizes of the tables.
func neverAnalyzed(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgleasetest.Pool(t, migrations.Lease, migrations.Fence, migrations.Jobs)
	for _, table := range append([]string{"lease_client", "outbox_relay"}, large...) {
		if _, err := pool.Exec(t.Context(), "ALTER TABLE pglease."+table+" SET (autovacuum_enabled = false)"); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}

// fillUnseen fills the tables and tells the planner nothing of it.
func fillUnseen(t *testing.T, pool *pgxpool.Pool, rows int) {
	t.Helper()
	err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		if err := run(t, conn.Conn(), "SET session_replication_role = replica"); err != nil {
			return err
		}
		if err := insert(t, conn.Conn(), rows); err != nil {
			return err
		}
		return run(t, conn.Conn(), "RESET session_replication_role")
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_statistic WHERE starelid::regclass::text LIKE 'pglease.%'").Scan(&seen); err != nil {
		t.Fatal(err)
	}
	if seen > 0 {
		t.Fatalf("the planner has statistics of %d columns", seen)
	}
}

// A table that was never analyzed is not walked through either, however many rows a statement names:
// it goes by an index from one to the next.
func TestPlansWithoutStatistics(t *testing.T) {
	t.Parallel()
	pool := neverAnalyzed(t)
	fillUnseen(t, pool, 10_000)
	for name, dir := range packages {
		for _, s := range statements(t, dir) {
			sizes := []int{1}
			if isBatched(s) {
				sizes = []int{1, 10, 500, 1000}
			}
			t.Run(name+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				if reason, ok := unlisted[name+"."+s.name]; ok {
					t.Logf("not held to it: it %s", reason)
					return
				}
				for _, mode := range planned {
					for _, size := range sizes {
						plan := explain(t, pool, s, how{mode: mode, batch: size, run: isBatched(s)})
						checkOneByOne(t, name+"."+s.name+" of "+strconv.Itoa(size), mode, plan)
					}
				}
			})
		}
	}
}

// unlisted are the statements that name no rows: what they look for they find by reading, each with its reason.
var unlisted = map[string]string{
	"jobs.Promote":          "deletes the signals of its partitions, and joins with all signals; there are as many as partitions to look at",
	"jobs.PrunePartitions":  "looks for partitions without jobs",
	"fence.CountRejections": "counts those since a time, of which the planner expects a third of the table",
}

var (
	wholeJoin = regexp.MustCompile(`(Hash|Merge) (\w+ )*Join`)
	thrown    = regexp.MustCompile(`Rows Removed by [A-Z][\w ]+: (\d+)`)
)

// checkOneByOne fails the test where a plan reads rows that the statement does not name.
func checkOneByOne(t *testing.T, what, mode, plan string) {
	t.Helper()
	checkNoWalk(t, what, mode, plan)
	if wholeJoin.MatchString(plan) {
		t.Errorf("%s, %s, joins with the whole of a table:\n%s", what, mode, plan)
	}
	for _, m := range thrown.FindAllStringSubmatch(plan, -1) {
		if n, err := strconv.Atoi(m[1]); err != nil || n > 1000 {
			t.Errorf("%s, %s, throws rows away:\n%s", what, mode, plan)
		}
	}
}
