package plans_test

import (
	"errors"
	"regexp"
	"slices"
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
	for _, table := range append([]string{"lease_client"}, large...) {
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
	renewed   = regexp.MustCompile(`^Update on resource_lease l \(actual rows=500(\.00)? `)
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

// A plan that was made and kept while the table was small is as good for a large one: a client that
// renews begins with few leases.
func TestPlanOfASmallTableIsKept(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]struct {
		rows    int
		analyze bool
	}{
		"empty": {}, "few": {rows: 300}, "some": {rows: 800}, "more": {rows: 1500},
		"few, analyzed": {rows: 20, analyze: true}, "some, analyzed": {rows: 100, analyze: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := neverAnalyzed(t)
			addLeases(t, pool, 1, before.rows)
			if before.analyze {
				if _, err := pool.Exec(t.Context(), "VACUUM ANALYZE pglease.resource_lease"); err != nil {
					t.Fatal(err)
				}
			}
			checkKeptAsItGrows(t, pool, before.rows)
		})
	}
}

// A plan that knows how few leases are renewed looks cheaper than one for any number; made anew each time it
// takes longer than all the rest.
func TestARenewalIsPlannedOnce(t *testing.T) {
	t.Parallel()
	pool := neverAnalyzed(t)
	addLeases(t, pool, 1, 1000)
	for _, leases := range []int{1, 10, 500} {
		err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
			call, err := prepare(t, conn.Conn(), renewal(t), how{mode: "auto", batch: leases})
			if err != nil {
				return err
			}
			for range 20 {
				if err := run(t, conn.Conn(), call); err != nil {
					return err
				}
			}
			var kept, anew int
			err = conn.QueryRow(t.Context(), "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE name = 's'").Scan(&kept, &anew)
			if kept == 0 || anew > 6 {
				t.Errorf("of 20 renewals of %d leases %d were planned anew, %d not", leases, anew, kept)
			}
			return errors.Join(err, run(t, conn.Conn(), "DEALLOCATE s"))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func renewal(t *testing.T) statement {
	t.Helper()
	all := statements(t, packages["lease"])
	return all[slices.IndexFunc(all, func(s statement) bool { return s.name == "Renew" })]
}

func checkKeptAsItGrows(t *testing.T, pool *pgxpool.Pool, rows int) {
	t.Helper()
	h := how{mode: "force_generic_plan", batch: 500, run: true}
	err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		call, err := prepare(t, conn.Conn(), renewal(t), h)
		if err != nil {
			return err
		}
		first, err := explained(t, conn.Conn(), call, h)
		if err != nil {
			return err
		}
		addLeases(t, pool, rows+1, 10_000)
		plan, err := explained(t, conn.Conn(), call, h)
		checkOneByOne(t, "Renew, kept from "+strconv.Itoa(rows)+" rows", h.mode, plan)
		if !renewed.MatchString(plan) {
			t.Errorf("it renewed other than 500 leases; before the table grew:\n%s\nafter it:\n%s", first, plan)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func addLeases(t *testing.T, pool *pgxpool.Pool, from, to int) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `INSERT INTO pglease.resource_lease (resource_id, owner_id, lease_id, request_id, fence, acquired_at, expires_at, ttl)
SELECT 'r/' || i, 'owner', md5('lease/' || i)::uuid, md5('request/' || i)::uuid, i, clock_timestamp(), clock_timestamp() + interval '1 hour', '1 hour'
FROM generate_series($1::int, $2::int) AS i`, from, to)
	if err != nil {
		t.Fatal(err)
	}
}
