package fence_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/docrights"
	"github.com/pglease/pglease/pglease/fence"
)

// Whoever has the rights of the docs can do all that a protected resource does, and cannot touch what is on record.
func TestTheRightsForFencesAreEnough(t *testing.T) {
	t.Parallel()
	owner, w := setUp(t)
	pool, role := docrights.Pool(t, owner, "fence")
	mustExec(t, owner, `CREATE TABLE public.device (device_id text PRIMARY KEY, setting text, fence bigint, lease_id uuid)`)
	mustExec(t, owner, `INSERT INTO public.device VALUES ($1)`, pump)
	mustExec(t, owner, `SELECT pglease.fence_table('public.device', 'device_id', 'fence', 'lease_id')`)
	mustExec(t, owner, `GRANT SELECT, UPDATE ON public.device TO `+role)

	if err := w.Establish(t.Context(), pool, token(t, 41)); err != nil {
		t.Error(err)
	}
	mustApply(t, pool, w, token(t, 42), fence.Op{Key: "k", Sequence: 1, Apply: result("done")})
	if out := mustApply(t, pool, w, token(t, 42), fence.Op{Key: "k", Sequence: 1, Apply: never(t)}); string(out.Result) != "done" {
		t.Errorf("repeated: %+v", out)
	}
	if _, err := apply(t, pool, w, token(t, 41), fence.Op{Apply: never(t)}); !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("a stale owner: %v", err)
	}
	stands(t, pool, w, 42, 1, 1)
	if commands, err := w.Commands(t.Context(), pool, pump); err != nil || len(commands) != 1 {
		t.Errorf("%d commands, %v", len(commands), err)
	}

	mustExec(t, pool, `UPDATE public.device SET setting = 'new', fence = 42, lease_id = $1`, token(t, 42).LeaseID().String())
	_, err := pool.Exec(t.Context(), `UPDATE public.device SET setting = 'old', fence = 41, lease_id = $1`, token(t, 41).LeaseID().String())
	if !fence.IsStale(err) {
		t.Errorf("a stale writer of a fenced table: %v", err)
	}
	if err := w.Record(t.Context(), pool, err); err != nil {
		t.Error(err)
	}
	rejected(t, pool, w, pump, 2)
	if n, err := w.CountRejections(t.Context(), pool, time.Time{}); err != nil || n != 2 {
		t.Errorf("%d rejections, %v", n, err)
	}

	docrights.Forbidden(t, pool,
		"DELETE FROM pglease.fence_watermark", "UPDATE pglease.fence_command SET result = ''", "DELETE FROM pglease.fence_command",
		"UPDATE pglease.fence_rejection SET owner_id = ''", "DELETE FROM pglease.fence_rejection",
		"SELECT pglease.unfence_table('public.device')")
}
