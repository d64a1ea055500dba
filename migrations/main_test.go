package migrations_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// migratorVariable makes the test binary a migrator, so that one can be killed.
const migratorVariable = "PGLEASE_TEST_MIGRATOR_URL"

// crowded is the schema of the tests with many processes.
const crowded = "crowded"

func TestMain(m *testing.M) {
	if url := os.Getenv(migratorVariable); url != "" {
		if err := migrateOnly(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	pgleasetest.Main(m)
}

func migrateOnly(url string) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	m, err := migrations.New(crowded)
	if err != nil {
		return err
	}
	_, err = m.Up(ctx, pool, migrations.Lease)
	return err
}

func newMigrator(t *testing.T, schema string) *migrations.Migrator {
	t.Helper()
	m, err := migrations.New(schema)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func up(t *testing.T, pool *pgxpool.Pool, schema string, line migrations.Line) migrations.Result {
	t.Helper()
	result, err := newMigrator(t, schema).Up(t.Context(), pool, line)
	if err != nil {
		t.Fatalf("up of %s in %q: %v", line, schema, err)
	}
	return result
}

func down(t *testing.T, pool *pgxpool.Pool, schema string, line migrations.Line) migrations.Result {
	t.Helper()
	result, err := newMigrator(t, schema).Down(t.Context(), pool, line)
	if err != nil {
		t.Fatalf("down of %s in %q: %v", line, schema, err)
	}
	return result
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func value[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func hasSchema(t *testing.T, pool *pgxpool.Pool, name string) bool {
	t.Helper()
	return value[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", name)
}

// quoted puts the schema before each name that is marked with a dot.
func quoted(schema, sql string) string {
	return strings.ReplaceAll(sql, "@.", pgx.Identifier{schema}.Sanitize()+".")
}

// until waits for a condition that another process brings about.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("in vain waited until %s", what)
		}
	}
}

// block takes a lock until the function that it returns is called.
func block(t *testing.T, pool *pgxpool.Pool, lock string) (release func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release = func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }
	t.Cleanup(release)
	if _, err := tx.Exec(t.Context(), lock); err != nil {
		t.Fatalf("%s: %v", lock, err)
	}
	return release
}

// waiting counts the sessions of an application that wait for a lock of a table.
func waiting(t *testing.T, pool *pgxpool.Pool, application, lockType string) int {
	t.Helper()
	return value[int](t, pool, `
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE $1 AND wait_event_type = 'Lock' AND wait_event = $2`,
		application, lockType)
}

func sessions(t *testing.T, pool *pgxpool.Pool, application string) int {
	t.Helper()
	return value[int](t, pool, `
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE $1`, application)
}
