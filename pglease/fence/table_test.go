package fence_test

import (
	"fmt"
	"testing"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// Each way of a writer in any language to be late, and each that is right.
func TestFenceTable(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	mustExec(t, pool, `CREATE SCHEMA "My App"; CREATE TABLE "My App"."De'vice" ("key" int PRIMARY KEY, "the Fence" bigint, lease uuid, setting text)`)
	mustExec(t, pool, `SELECT pglease.fence_table('"My App"."De''vice"', 'key', 'the Fence', 'lease')`)
	mustExec(t, pool, `INSERT INTO "My App"."De'vice" VALUES (1, NULL, NULL, ''), (2, 50, $1, '')`, token(t, 50).LeaseID().String())
	update := func(number, lease any, key int) string {
		return fmt.Sprintf(`UPDATE "My App"."De'vice" SET setting = setting || 'x', "the Fence" = %v, lease = %v WHERE key = %d`, number, lease, key)
	}
	id := func(lease int) string { return "'" + token(t, lease).LeaseID().String() + "'" }
	mustExec(t, pool, update("NULL", "NULL", 1)) // untouched
	mustExec(t, pool, update(41, id(41), 1))     // first touch
	mustExec(t, pool, update(41, id(41), 1))     // equal
	mustExec(t, pool, update(42, id(42), 1))     // higher
	refused(t, pool, "PGF01", update(41, id(41), 1))
	refused(t, pool, "PGF01", update(42, id(41), 1))
	refused(t, pool, "PGF01", update(42, "NULL", 1))
	refused(t, pool, "PGF01", update("NULL", "NULL", 1))
	refused(t, pool, "PGF01", `UPDATE "My App"."De'vice" SET "the Fence" = 45`) // row 2 is further, so neither
	refused(t, pool, "PGF02", `UPDATE "My App"."De'vice" SET key = 3 WHERE key = 1`)
	refused(t, pool, "PGF02", `DELETE FROM "My App"."De'vice" WHERE key = 1`)
	refused(t, pool, "PGF02", `TRUNCATE "My App"."De'vice"`)
	refused(t, pool, "PGF01", `INSERT INTO "My App"."De'vice" AS d VALUES (1, 41) ON CONFLICT (key) DO UPDATE SET "the Fence" = EXCLUDED."the Fence"`)
	// A statement that names no fence is not held to one.
	mustExec(t, pool, `UPDATE "My App"."De'vice" SET setting = setting || 'y' WHERE key = 1`)
	if n := count(t, pool, `SELECT length(setting) FROM "My App"."De'vice" WHERE key = 1`); n != 5 {
		t.Errorf("%d writes took effect, want 5", n)
	}

	// The refusal says what it was about, and can be kept.
	_, err := pool.Exec(t.Context(), update(41, id(41), 1))
	stale := fence.AsStale(err)
	if !fence.IsStale(err) || stale == nil || stale.Resource != "1" || stale.Table != "My App.De'vice" || stale.Fence != 41 || stale.GreatestFence != 42 {
		t.Fatalf("got %v, %+v", err, stale)
	}
	if err := w.Record(t.Context(), pool, err); err != nil {
		t.Fatal(err)
	}
	if j := rejected(t, pool, w, "1", 1)[0]; j.Refused.Table != "My App.De'vice" || j.Refused.Fence != 41 || j.Refused.GreatestFence != 42 ||
		j.Refused.LeaseID != token(t, 41).LeaseID() || j.Refused.GreatestLeaseID != token(t, 42).LeaseID() || j.Late() != 0 {
		t.Errorf("recorded %+v", j)
	}
}

func TestFenceTableAgain(t *testing.T) {
	t.Parallel()
	pool, _ := setUp(t)
	mustExec(t, pool, `CREATE TABLE device (id int, other int, fence bigint, f2 bigint)`)
	mustExec(t, pool, `INSERT INTO device VALUES (1, 1, 42, 42)`)
	mustExec(t, pool, `SELECT pglease.fence_table('device', 'id', 'fence')`)
	refused(t, pool, "PGF01", `UPDATE device SET fence = 41`)
	refused(t, pool, "PGF02", `DELETE FROM device`)
	// What it did before is replaced.
	mustExec(t, pool, `SELECT pglease.fence_table('device', key_column => 'other', fence_column => 'f2', allow_delete => true)`)
	mustExec(t, pool, `UPDATE device SET fence = 41, id = 2`)
	refused(t, pool, "PGF01", `UPDATE device SET f2 = 41`)
	mustExec(t, pool, `DELETE FROM device`)
	mustExec(t, pool, `TRUNCATE device`)
	if n := count(t, pool, `SELECT count(*) FROM pg_trigger WHERE tgrelid = 'device'::regclass`); n != 1 {
		t.Errorf("%d triggers", n)
	}
	mustExec(t, pool, `SELECT pglease.unfence_table('device')`)
	if n := count(t, pool, `SELECT count(*) FROM pg_trigger WHERE tgrelid = 'device'::regclass`); n != 0 {
		t.Errorf("%d triggers", n)
	}
	refused(t, pool, "42703", `SELECT pglease.fence_table('device', 'none', 'fence')`)
	refused(t, pool, "42P01", `SELECT pglease.fence_table('none', 'id', 'fence')`)
}

// The table's own triggers may change the row before it is judged, and are judged too.
func TestFenceTableSeesWhatOtherTriggersMade(t *testing.T) {
	t.Parallel()
	pool, _ := setUp(t)
	mustExec(t, pool, `CREATE TABLE device (id int, fence bigint)`)
	mustExec(t, pool, `INSERT INTO device VALUES (1, 42)`)
	mustExec(t, pool, `CREATE FUNCTION lower_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.fence := 1; RETURN NEW; END $$`)
	mustExec(t, pool, `CREATE TRIGGER zzz BEFORE UPDATE ON device FOR EACH ROW EXECUTE FUNCTION lower_it()`)
	mustExec(t, pool, `SELECT pglease.fence_table('device', 'id', 'fence')`)
	refused(t, pool, "PGF01", `UPDATE device SET fence = 43`)
}

// The line needs nothing of the leases, goes under any name, and leaves no table unprotected in
// silence.
func TestTheLineAlone(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	mustExec(t, pool, `DROP SCHEMA pglease CASCADE`)
	for _, name := range []string{"plain", `It's "a" 100%s schema`} {
		migrator, err := migrations.New(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := migrator.Up(t.Context(), pool, migrations.Fence); err != nil {
			t.Fatal(err)
		}
		w, err := fence.NewWatermarks(fence.Config{Schema: name, Owner: "tester"})
		if err != nil {
			t.Fatal(err)
		}
		story(t, pool, w)
		quoted := quoteSchema(t, pool, name)
		mustExec(t, pool, `CREATE TABLE device (id int, fence bigint)`)
		mustExec(t, pool, `INSERT INTO device VALUES (1, 42)`)
		mustExec(t, pool, `SELECT `+quoted+`.fence_table('device', 'id', 'fence')`)
		refused(t, pool, "PGF01", `UPDATE device SET fence = 41`)
		if _, err := migrator.Down(t.Context(), pool, migrations.Fence); code(err) != "2BP01" {
			t.Errorf("down while a table is fenced: %v", err)
		}
		mustExec(t, pool, `SELECT `+quoted+`.unfence_table('device')`)
		if _, err := migrator.Down(t.Context(), pool, migrations.Fence); err != nil {
			t.Error(err)
		}
		mustExec(t, pool, `DROP TABLE device`)
	}
}
