package fence_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/fence"
)

// limited returns a pool whose sessions have the rights of docs/operations.md for fences and no others, and their role.
func limited(t *testing.T, owner *pgxpool.Pool) (pool *pgxpool.Pool, role string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```sql\n-- fence\n")
	sql, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("docs/operations.md has no rights for fences")
	}
	name := "app_" + owner.Config().ConnConfig.Database
	role = pgx.Identifier{name}.Sanitize()
	mustExec(t, owner, "CREATE ROLE "+role)
	t.Cleanup(func() {
		if _, err := owner.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Logf("the role stays: %v", err)
		}
	})
	mustExec(t, owner, strings.ReplaceAll(sql, " TO app;", " TO "+role+";"))
	config := owner.Config()
	config.ConnConfig.RuntimeParams["role"] = name
	if pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, role
}

// Whoever has the rights of the docs can do all that a protected resource does, and cannot touch what is on record.
func TestTheRightsForFencesAreEnough(t *testing.T) {
	t.Parallel()
	owner, w := setUp(t)
	pool, role := limited(t, owner)
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

	for _, sql := range []string{
		"DELETE FROM pglease.fence_watermark", "UPDATE pglease.fence_command SET result = ''", "DELETE FROM pglease.fence_command",
		"UPDATE pglease.fence_rejection SET owner_id = ''", "DELETE FROM pglease.fence_rejection",
		"SELECT pglease.unfence_table('public.device')",
	} {
		_, err := pool.Exec(t.Context(), sql)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
	}
}
