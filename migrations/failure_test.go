package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func asError(t *testing.T, err error) *migrations.Error {
	t.Helper()
	var failed *migrations.Error
	if !errors.As(err, &failed) {
		t.Fatalf("error is %T: %v", err, err)
	}
	return failed
}

// poolAs returns a pool whose sessions have a name and perhaps other settings.
func poolAs(t *testing.T, like *pgxpool.Pool, name string, settings map[string]string) *pgxpool.Pool {
	t.Helper()
	return pools.Like(t, like, pools.Settings(map[string]string{"application_name": name}), pools.Settings(settings))
}

func TestCancelledWhileWaiting(t *testing.T) {
	t.Parallel()
	for _, at := range []struct{ wait, lock string }{
		{"advisory", lockOf("cancelled")},
		{"relation", "LOCK TABLE pg_catalog.pg_trigger IN SHARE MODE"},
	} {
		t.Run(at.wait, func(t *testing.T) {
			t.Parallel()
			pool := pgleasetest.Pool(t)
			block(t, pool, at.lock)
			m, mine := newMigrator(t, "cancelled"), poolAs(t, pool, "cancelled", nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, err := m.Up(ctx, mine, migrations.Lease)
				done <- err
			}()
			until(t, "it waits", func() bool { return waiting(t, pool, "cancelled", at.wait) == 1 })
			cancel()
			select {
			case err := <-done:
				_ = asError(t, err)
				if !errors.Is(err, context.Canceled) {
					t.Errorf("error does not match context.Canceled: %v", err)
				}
			case <-time.After(5 * time.Second):
				t.Fatal("the call goes on without its context")
			}
			until(t, "its session is gone", func() bool { return sessions(t, pool, "cancelled") == 0 })
			if hasSchema(t, pool, "cancelled") {
				t.Error("it left its schema")
			}
		})
	}
}

// A migration that waits for a table makes everybody else wait for it too, so a user's own limit
// on that counts, and what it stopped is undone.
func TestLockTimeoutOfTheUser(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	release := block(t, pool, "LOCK TABLE pg_catalog.pg_trigger IN SHARE MODE")
	impatient := poolAs(t, pool, "impatient", map[string]string{"lock_timeout": "50ms"})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := newMigrator(t, "impatient").Up(ctx, impatient, migrations.Lease)
	failed := asError(t, err)
	if failed.Version != 1 || !strings.HasPrefix(failed.Statement, "CREATE TRIGGER") || !strings.Contains(err.Error(), "55P03") {
		t.Errorf("version %d, statement %q: %v", failed.Version, failed.Statement, err)
	}
	if hasSchema(t, pool, "impatient") {
		t.Error("something is left")
	}
	release()
	up(t, impatient, "impatient", migrations.Lease)
}

func TestForeignTableInTheWay(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	const schema = "in the way"
	execute(t, pool, quoted(schema, `CREATE SCHEMA "in the way"; CREATE TABLE @.lease_history ()`))
	_, err := newMigrator(t, schema).Up(t.Context(), pool, migrations.Lease)
	failed := asError(t, err)
	if failed.Op != "up" || failed.Line != migrations.Lease || failed.Version != 1 || failed.Name == "" {
		t.Errorf("error has %q %q %d %q", failed.Op, failed.Line, failed.Version, failed.Name)
	}
	if want := quoted(schema, "CREATE TABLE @.lease_history ("); !strings.HasPrefix(failed.Statement, want) || !strings.HasSuffix(failed.Statement, ";") {
		t.Errorf("statement at fault is %q, want %q...", failed.Statement, want)
	}
	if want := "not all of this version is there: something else has that name, or another tool stopped half way"; !strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error does not end in %q, or has lines: %v", want, err)
	}
	if state, err := newMigrator(t, schema).Version(t.Context(), pool, migrations.Lease); err != nil || state.Version != 0 {
		t.Errorf("version %+v, %v", state, err)
	}
}

// Another tool applied all migrations of a line: the version to record is the one that the tables
// are at, whichever migration is the first in whose way they are.
func TestAppliedByAnotherTool(t *testing.T) {
	t.Parallel()
	for _, line := range migrations.Lines() {
		pool := pgleasetest.Pool(t)
		schema := "tool " + string(line)
		all, err := migrations.All(line, schema)
		if err != nil {
			t.Fatal(err)
		}
		execute(t, pool, "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize())
		m := newMigrator(t, schema)
		for _, applied := range all {
			execute(t, pool, applied.Up)
			for recorded := range applied.Version {
				if err := m.Force(t.Context(), pool, line, recorded); err != nil {
					t.Fatal(err)
				}
				_, err := m.Up(t.Context(), pool, line)
				if want := fmt.Sprintf("--schema '%s' %d", schema, applied.Version); err == nil || !strings.HasSuffix(asError(t, err).Hint, want) {
					t.Errorf("%s at %d, recorded as %d: %v, want %q at the end", line, applied.Version, recorded, err, want)
				}
			}
		}
		if err := m.Force(t.Context(), pool, line, migrations.Latest(line)); err != nil {
			t.Fatal(err)
		}
		if result := up(t, pool, schema, line); len(result.Applied) > 0 {
			t.Errorf("%s: applied %+v", line, result.Applied)
		}
	}
}

func TestDirty(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	const schema = "dirty"
	m := newMigrator(t, schema)
	up(t, pool, schema, migrations.Lease)
	execute(t, pool, "UPDATE dirty.migrations_lease SET dirty = true") // as golang-migrate's own drivers do
	_, errUp := m.Up(t.Context(), pool, migrations.Lease)
	_, errDown := m.Down(t.Context(), pool, migrations.Lease)
	for _, err := range []error{errUp, errDown} {
		if !errors.Is(err, migrations.ErrDirty) || !strings.Contains(err.Error(), "pglease migrate force --schema 'dirty' ") {
			t.Errorf("error: %v", err)
		}
	}
	latest := migrations.Latest(migrations.Lease)
	if state, err := m.Version(t.Context(), pool, migrations.Lease); err != nil || !state.Dirty || state.Version != latest {
		t.Errorf("version %+v, %v", state, err)
	}
	if err := m.Force(t.Context(), pool, migrations.Lease, latest+1); err == nil {
		t.Error("a version that there is not was recorded")
	}
	if err := m.Force(t.Context(), pool, migrations.Lease, latest); err != nil {
		t.Fatal(err)
	}
	if result := up(t, pool, schema, migrations.Lease); len(result.Applied) != 0 {
		t.Errorf("applied after force: %+v", result.Applied)
	}
	down(t, pool, schema, migrations.Lease)
}

// An older release starts beside a newer one, and does not undo what it does not know.
func TestDatabaseIsNewer(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	const schema = "newer"
	up(t, pool, schema, migrations.Lease)
	execute(t, pool, "UPDATE newer.migrations_lease SET version = 999")
	if result := up(t, pool, schema, migrations.Lease); result.To != 999 || len(result.Applied) != 0 {
		t.Errorf("up: %+v", result)
	}
	_, err := newMigrator(t, schema).Down(t.Context(), pool, migrations.Lease)
	if !errors.Is(err, migrations.ErrNewer) {
		t.Errorf("down: %v", err)
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	u := url.URL{Scheme: "postgres", Host: "127.0.0.1:1", User: url.UserPassword("app", "s3cret"), Path: "/app"}
	pool, err := pgxpool.New(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	err = migrations.Up(t.Context(), pool, migrations.Lease)
	_ = asError(t, err)
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error tells the password: %v", err)
	}
	if err := migrations.Up(t.Context(), pool, "nonsense"); err == nil {
		t.Error("an unknown line was migrated")
	}
}
