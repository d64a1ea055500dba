package fence_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/fence"
)

// A table of partitions is one table.
func TestFenceTableOfPartitions(t *testing.T) {
	t.Parallel()
	pool, _ := setUp(t)
	mustExec(t, pool, `CREATE TABLE device (id int PRIMARY KEY, fence bigint) PARTITION BY RANGE (id)`)
	mustExec(t, pool, `CREATE TABLE device_1 PARTITION OF device FOR VALUES FROM (0) TO (10)`)
	mustExec(t, pool, `SELECT pglease.fence_table('device', 'id', 'fence')`)
	mustExec(t, pool, `CREATE TABLE device_2 PARTITION OF device FOR VALUES FROM (10) TO (20)`)
	mustExec(t, pool, `INSERT INTO device VALUES (1, 42), (11, 42)`)
	refused(t, pool, "PGF01", `UPDATE device SET fence = 41 WHERE id = 1`)
	refused(t, pool, "PGF01", `UPDATE device_2 SET fence = 41`)
	mustExec(t, pool, `UPDATE device SET fence = 43`)
	refused(t, pool, "PGF02", `TRUNCATE device`)
	refused(t, pool, "PGF02", `TRUNCATE device_1`)
	mustExec(t, pool, `SELECT pglease.fence_table('device', 'id', 'fence')`) // again, for what was added since
	refused(t, pool, "PGF02", `TRUNCATE device_2`)
	unfenced(t, pool, "device")
}

// To Postgres a row that moves to another partition is deleted here and inserted there; its fence is
// looked at all the same.
func TestARowThatMovesToAnotherPartition(t *testing.T) {
	t.Parallel()
	pool, _ := setUp(t)
	mustExec(t, pool, `CREATE TABLE device (id int, region text, fence bigint, lease uuid) PARTITION BY LIST (region)`)
	mustExec(t, pool, `CREATE TABLE device_a PARTITION OF device FOR VALUES IN ('a') PARTITION BY LIST (region)`)
	mustExec(t, pool, `CREATE TABLE device_aa PARTITION OF device_a DEFAULT`)
	mustExec(t, pool, `CREATE TABLE device_b PARTITION OF device FOR VALUES IN ('b')`)
	id := token(t, 42).LeaseID().String()
	mustExec(t, pool, `INSERT INTO device VALUES (1, 'a', 42, $1)`, id)

	mustExec(t, pool, `SELECT pglease.fence_table('device', 'id', 'fence', 'lease')`)
	refused(t, pool, "PGF01", `UPDATE device SET region = 'b', fence = 41`)
	refused(t, pool, "PGF02", `UPDATE device SET region = 'b', fence = 43`) // it would be a DELETE
	refused(t, pool, "PGF02", `TRUNCATE device_aa`)

	mustExec(t, pool, `SELECT pglease.fence_table('device', 'id', 'fence', 'lease', allow_delete => true)`)
	refused(t, pool, "PGF01", `UPDATE device SET region = 'b', fence = 41`)
	refused(t, pool, "PGF01", `UPDATE device SET region = 'b', fence = 42, lease = gen_random_uuid()`)
	refused(t, pool, "PGF01", `UPDATE device SET region = 'b', fence = NULL`)
	refused(t, pool, "PGF02", `UPDATE device SET region = 'b', id = 2`)
	mustExec(t, pool, `UPDATE device SET region = 'b', fence = 42, lease = $1`, id)
	if n := count(t, pool, `SELECT count(*) FROM device_b WHERE fence = 42`); n != 1 {
		t.Errorf("%d rows have moved", n)
	}
	unfenced(t, pool, "device")
}

// Rows of a table that inherits are the parent's rows too, and triggers are not inherited.
func TestFenceTableOfInheritance(t *testing.T) {
	t.Parallel()
	pool, _ := setUp(t)
	mustExec(t, pool, `CREATE TABLE device (id int, fence bigint); CREATE TABLE pump () INHERITS (device); CREATE TABLE big () INHERITS (pump)`)
	mustExec(t, pool, `INSERT INTO big VALUES (1, 42)`)
	mustExec(t, pool, `SELECT pglease.fence_table('device', 'id', 'fence')`)
	refused(t, pool, "PGF01", `UPDATE device SET fence = 41`)
	refused(t, pool, "PGF01", `UPDATE big SET fence = 41`)
	refused(t, pool, "PGF02", `DELETE FROM pump`)
	refused(t, pool, "PGF02", `TRUNCATE big`)
	mustExec(t, pool, `UPDATE device SET fence = 43`)
	unfenced(t, pool, "device")
}

func unfenced(t *testing.T, pool *pgxpool.Pool, table string) {
	t.Helper()
	mustExec(t, pool, `SELECT pglease.unfence_table('`+table+`')`)
	if n := count(t, pool, `SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'pglease%'`); n != 0 {
		t.Errorf("%d triggers are left", n)
	}
}

// Fences of another type have another order, or none.
func TestFenceTableWantsNumbers(t *testing.T) {
	t.Parallel()
	pool, _ := setUp(t)
	mustExec(t, pool, `CREATE TABLE device (id int, t text, n numeric, f double precision, i int, fence bigint, lease text)`)
	for _, column := range []string{"t", "n", "f", "i"} {
		refused(t, pool, "42804", `SELECT pglease.fence_table('device', 'id', '`+column+`')`)
	}
	refused(t, pool, "42804", `SELECT pglease.fence_table('device', 'id', 'fence', 'lease')`)
	refused(t, pool, "42P01", `SELECT pglease.fence_table(to_regclass('devise'), 'id', 'fence')`)
}

// A trigger keeps the columns and forgets their names, so what it says would be wrong.
func TestFenceTableAfterARename(t *testing.T) {
	t.Parallel()
	pool, _ := setUp(t)
	mustExec(t, pool, `CREATE TABLE device (id int, fence bigint); INSERT INTO device VALUES (1, 42)`)
	mustExec(t, pool, `SELECT pglease.fence_table('device', 'id', 'fence')`)
	mustExec(t, pool, `ALTER TABLE device RENAME COLUMN fence TO token`)
	refused(t, pool, "PGF02", `UPDATE device SET token = 41`)
	mustExec(t, pool, `UPDATE device SET token = 43`)
	mustExec(t, pool, `SELECT pglease.fence_table('device', 'id', 'token')`)
	refused(t, pool, "PGF01", `UPDATE device SET token = 41`)
}

// A write that is stale and renames the row is first of all stale.
func TestFenceTableTellsStaleFirst(t *testing.T) {
	t.Parallel()
	pool, _ := setUp(t)
	mustExec(t, pool, `CREATE TABLE device (id int, fence bigint); INSERT INTO device VALUES (1, 42), (NULL, 42)`)
	mustExec(t, pool, `SELECT pglease.fence_table('device', 'id', 'fence')`)
	refused(t, pool, "PGF01", `UPDATE device SET fence = 41, id = 2 WHERE id = 1`)
	refused(t, pool, "PGF01", `INSERT INTO device VALUES (1, 41); UPDATE device SET fence = 41 WHERE id = 1`)
	_, err := pool.Exec(t.Context(), `UPDATE device SET fence = NULL WHERE id IS NULL`)
	if stale := fence.AsStale(err); stale == nil || stale.Resource != "" || stale.Fence != 0 || stale.GreatestFence != 42 {
		t.Errorf("got %v, %+v", err, stale)
	}
}
