package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/fence"
)

var deviceColumn = fence.Column{Table: pgx.Identifier{"public", "device"}, Key: "device_id", Fence: "fence", Lease: "lease_id"}

// columnStory goes once through all that a column answers.
func columnStory(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	mustExec(t, pool, `CREATE TABLE public.device (device_id text PRIMARY KEY, setting text, version int DEFAULT 0, fence bigint, lease_id uuid)`)
	set := func(text string, version int) fence.Change {
		return fence.Change{Set: "setting = $1, version = t.version + 1", Where: "t.version = $2", Args: []any{text, version}}
	}
	holds := func(text string, number int) {
		t.Helper()
		if n := count(t, pool, `SELECT count(*) FROM public.device WHERE device_id = $1 AND setting = $2 AND fence = $3`, pump, text, number); n != 1 {
			t.Errorf("the device is not at %q under fence %d", text, number)
		}
	}
	update := func(by fence.Token, change fence.Change, want error) {
		t.Helper()
		if err := deviceColumn.Update(t.Context(), pool, by, change); !errors.Is(err, want) || (err != nil) != (want != nil) {
			t.Errorf("fence %d: got %v, want %v", by.Fence(), err, want)
		}
	}
	update(token(t, 41), set("none", 0), fence.ErrNotFound)
	mustExec(t, pool, `INSERT INTO public.device (device_id) VALUES ($1), ('other')`, pump)
	update(token(t, 41), set("one", 0), nil)
	update(token(t, 41), set("again", 0), fence.ErrConflict)
	update(token(t, 41), set("two", 1), nil)
	holds("two", 41)
	update(token(t, 42), set("three", 9), fence.ErrConflict)
	holds("two", 41)
	if err := deviceColumn.Establish(t.Context(), pool, token(t, 42), nil); err != nil {
		t.Error(err)
	}
	holds("two", 42)
	update(token(t, 41), set("late", 2), fence.ErrStaleOwner)
	update(token(t, 41), set("late", 7), fence.ErrStaleOwner) // whatever else is wrong
	update(tokenOf(t, pump, 42, 7), set("twin", 2), fence.ErrStaleOwner)
	update(token(t, 42), set("three", 2), nil)
	update(token(t, 42), fence.Change{Key: "other", Set: "setting = $1", Args: []any{"x"}}, nil)
	update(fence.Token{}, set("x", 3), fence.ErrInvalidToken)
	holds("three", 42)
}

func TestColumn(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	columnStory(t, pool)
	err := deviceColumn.Update(t.Context(), pool, token(t, 41), fence.Change{Set: "setting = 'x'"})
	stale := fence.AsStale(err)
	if stale == nil || stale.Fence != 41 || stale.GreatestFence != 42 || stale.GreatestLeaseID != token(t, 42).LeaseID() || stale.Resource != pump {
		t.Fatalf("got %v", err)
	}
	for range 2 { // recorded once
		if err := w.Record(t.Context(), pool, err); err != nil {
			t.Fatal(err)
		}
	}
	rejected(t, pool, w, pump, 1)
	for _, wrong := range []fence.Column{{}, {Table: pgx.Identifier{"device"}, Fence: "fence"}, {Table: pgx.Identifier{"device"}, Key: "device_id"}} {
		if err := wrong.Establish(t.Context(), pool, token(t, 50), nil); !errors.Is(err, fence.ErrInvalidOp) {
			t.Errorf("%+v: got %v", wrong, err)
		}
	}
}

func TestColumnSQL(t *testing.T) {
	t.Parallel()
	c := fence.Column{Table: pgx.Identifier{"app", `de"vice`}, Key: "id", Fence: "fence"}
	got := c.SQL(fence.Change{Set: "body = $1", Where: "t.version = $2 OR $2 = 0", Args: []any{"", 0}})
	want := `UPDATE "app"."de""vice" AS t SET "fence" = $3::bigint, body = $1 WHERE t."id" = $4` +
		` AND (t."fence" IS NULL OR t."fence" < $3::bigint OR (t."fence" = $3::bigint)) AND (t.version = $2 OR $2 = 0)`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// An UPDATE that waited for a rival judges the row as the rival left it.
func TestColumnWaitsForARival(t *testing.T) {
	t.Parallel()
	pool, _ := setUp(t)
	mustExec(t, pool, `CREATE TABLE device (device_id text PRIMARY KEY, setting text, fence bigint, lease_id uuid)`)
	mustExec(t, pool, `INSERT INTO device VALUES ($1)`, pump)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) // after a commit it has nothing to do
	if err := deviceColumn.Update(t.Context(), tx, token(t, 42), fence.Change{Set: "setting = 'new'"}); err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	go func() {
		told <- deviceColumn.Update(t.Context(), pool, token(t, 41), fence.Change{Set: "setting = 'old'"})
	}()
	waitForLock(t, pool)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-told; !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("got %v", err)
	}
}

// Who is kept from a row by the table itself is told so, and not that there was a rival.
func TestColumnThatATriggerSuppresses(t *testing.T) {
	t.Parallel()
	pool, _ := setUp(t)
	mustExec(t, pool, `CREATE TABLE public.device (device_id text PRIMARY KEY, fence bigint, lease_id uuid)`)
	mustExec(t, pool, `INSERT INTO public.device VALUES ($1)`, pump)
	mustExec(t, pool, `CREATE FUNCTION keep_off() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
	mustExec(t, pool, `CREATE TRIGGER keep_off BEFORE UPDATE ON public.device FOR EACH ROW EXECUTE FUNCTION keep_off()`)
	err := deviceColumn.Establish(t.Context(), pool, token(t, 41), nil)
	if err == nil || fence.IsStale(err) || !strings.Contains(err.Error(), "a trigger or a policy") {
		t.Errorf("got %v", err)
	}
}

// The SQL of docs/fencing.md for who writes without this package.
func TestDocumentedSQL(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	const upsert = `INSERT INTO pglease.fence_watermark AS w (resource_id, fence, lease_id, owner_id) VALUES ($1, $2, $3, $4)
		ON CONFLICT (resource_id) DO UPDATE
		SET fence = EXCLUDED.fence, lease_id = EXCLUDED.lease_id, owner_id = EXCLUDED.owner_id, version = w.version + 1,
		    last_sequence  = CASE WHEN w.fence < EXCLUDED.fence THEN 0 ELSE w.last_sequence END,
		    established_at = CASE WHEN w.fence < EXCLUDED.fence THEN clock_timestamp() ELSE w.established_at END
		WHERE w.fence < EXCLUDED.fence OR (w.fence = EXCLUDED.fence AND w.lease_id = EXCLUDED.lease_id)`
	for _, c := range []struct {
		by   fence.Token
		rows int64
	}{
		{token(t, 41), 1}, {token(t, 41), 1}, {token(t, 42), 1}, {token(t, 41), 0}, {tokenOf(t, pump, 42, 7), 0},
	} {
		tag, err := pool.Exec(t.Context(), upsert, pump, c.by.Fence(), c.by.LeaseID().String(), fmt.Sprint("W", c.by.Fence()))
		if err != nil || tag.RowsAffected() != c.rows {
			t.Errorf("%v: %d rows, %v; want %d", c.by, tag.RowsAffected(), err, c.rows)
		}
	}
	stands(t, pool, w, 42, 2, 0)
	if mark, err := w.Watermark(t.Context(), pool, pump); err != nil || mark.Owner != "W42" {
		t.Errorf("the watermark is %+v, %v", mark, err)
	}
}
