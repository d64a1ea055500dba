package fence_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// story goes once through every statement.
func story(t *testing.T, pool *pgxpool.Pool, w *fence.Watermarks) {
	t.Helper()
	if err := w.Establish(t.Context(), pool, token(t, 41)); err != nil {
		t.Fatal(err)
	}
	odd := "\x00\xff'\\ é"
	mustApply(t, pool, w, token(t, 41), fence.Op{Key: "k' é", Sequence: 1, ExpectedVersion: new(int64(0)), Apply: result(odd)})
	if out := mustApply(t, pool, w, token(t, 41), fence.Op{Key: "k' é"}); !out.Repeated || string(out.Result) != odd {
		t.Errorf("got %+v", out)
	}
	mustApply(t, pool, w, token(t, 42), fence.Op{Sequence: 2})
	if out := mustApply(t, pool, w, token(t, 42), fence.Op{Sequence: 2}); !out.Repeated || out.Result != nil {
		t.Errorf("got %+v", out)
	}
	mustApply(t, pool, w, token(t, 42), fence.Op{})
	_, err := apply(t, pool, w, token(t, 41), fence.Op{})
	if !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("got %v", err)
	}
	if err := w.Record(t.Context(), pool, err); err != nil {
		t.Error(err)
	}
	if err := w.Record(t.Context(), pool, &fence.StaleError{Resource: pump, Fence: 1, GreatestFence: 2}); err != nil {
		t.Error(err)
	}
	stands(t, pool, w, 42, 3, 2)
	rejected(t, pool, w, pump, 2)
	counted(t, pool, w, 2)
	if commands, err := w.Commands(t.Context(), pool, pump); err != nil || len(commands) != 2 {
		t.Errorf("commands %+v, %v", commands, err)
	}
}

func quoteSchema(t *testing.T, pool *pgxpool.Pool, name string) (quoted string) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT quote_ident($1)`, name).Scan(&quoted); err != nil {
		t.Fatal(err)
	}
	return quoted
}

// withSettings returns a pool to a migrated database whose sessions have the settings.
func withSettings(tb testing.TB, settings map[string]string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	return pools.Open(tb, pgleasetest.URL(tb, migrations.Fence), append(change, pools.Settings(settings))...)
}

func TestEveryQueryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := withSettings(t, nil, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			story(t, pool, newWatermarks(t))
			columnStory(t, pool)
		})
	}
}

func TestSessionSettingsDoNotMatter(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]map[string]string{
		"search_path":  {"search_path": `"nowhere"`},
		"isolation":    {"default_transaction_isolation": "serializable"},
		"time zone":    {"TimeZone": "Asia/Kathmandu", "DateStyle": "SQL, DMY", "IntervalStyle": "sql_standard"},
		"bytea_output": {"bytea_output": "escape"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := withSettings(t, settings)
			story(t, pool, newWatermarks(t))
			columnStory(t, pool)
		})
	}
}
