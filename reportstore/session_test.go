package reportstore_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
	"github.com/pglease/pglease/reportstore"
)

// story goes once through every statement.
func story(t *testing.T, store *reportstore.Store) {
	t.Helper()
	if err := store.Establish(t.Context(), token(t, 41), july); err != nil {
		t.Fatal(err)
	}
	body := "\x00\xff'\\ é"
	publish(t, store, token(t, 41), body, 0, 1)
	publish(t, store, token(t, 42), "two", 1, 2)
	if err := store.Establish(t.Context(), token(t, 41), july); !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("establish: %v", err)
	}
	_, err := store.Publish(t.Context(), token(t, 41), reportstore.Report{ID: july, ExpectedVersion: 2})
	if !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("publish: %v", err)
	}
	publish(t, store, tokenOf(t, "report/first", 1, 1), body, 0, 1)
	holds(t, store, "two", 2, 42)
	if got, err := store.ReadVersion(t.Context(), july, 1); err != nil || string(got.Body) != body {
		t.Errorf("version 1: %q, %v", got.Body, err)
	}
	if w, err := store.Watermark(t.Context(), july); err != nil || w.Fence != 42 {
		t.Errorf("watermark %+v, %v", w, err)
	}
	if h := history(t, store); len(h) != 2 {
		t.Errorf("history %+v", h)
	}
	rejected(t, store, 2)
}

func TestEveryQueryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			story(t, newStore(t, withSettings(t, nil, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })))
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
			story(t, newStore(t, withSettings(t, settings)))
		})
	}
}

func TestAnotherSchema(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	for _, name := range []string{`Other "schema"`, "plain"} {
		migrator, err := migrations.New(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := migrator.Up(t.Context(), pool, migrations.Report); err != nil {
			t.Fatal(err)
		}
		store, err := reportstore.New(pool, reportstore.Config{Schema: name, Owner: "tester"})
		if err != nil {
			t.Fatal(err)
		}
		story(t, store)
	}
}
