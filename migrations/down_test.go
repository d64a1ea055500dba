package migrations_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// halfUp brings a line of two migrations to its first.
func halfUp(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	up(t, pool, schema, migrations.Jobs)
	all, err := migrations.All(migrations.Jobs, schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all[1:] {
		execute(t, pool, m.Down)
	}
	if err := newMigrator(t, schema).Force(t.Context(), pool, migrations.Jobs, 1); err != nil {
		t.Fatal(err)
	}
}

// asks begins a call and returns when it waits for its turn, with what will tell its error.
func asks(t *testing.T, pool *pgxpool.Pool, name string, call func(*pgxpool.Pool) error) <-chan error {
	t.Helper()
	mine := poolAs(t, pool, name, nil)
	done := make(chan error, 1)
	go func() { done <- call(mine) }()
	until(t, name+" waits for its turn", func() bool { return waiting(t, pool, name, "advisory") == 1 })
	return done
}

func standsAt(t *testing.T, pool *pgxpool.Pool, schema string, want uint) {
	t.Helper()
	state, err := newMigrator(t, schema).Version(t.Context(), pool, migrations.Jobs)
	if err != nil || state.Version != want {
		t.Errorf("the line stands at %+v, %v, want %d", state, err, want)
	}
}

// An Up that was in line first makes what the Down did not see when it was called.
func TestDownLeavesWhatWasMadeAfterItAsked(t *testing.T) {
	t.Parallel()
	latest := migrations.Latest(migrations.Jobs)
	for name, c := range map[string]struct {
		before func(t *testing.T, pool *pgxpool.Pool, schema string)
		want   error
	}{
		"half of it was there": {halfUp, migrations.ErrOvertaken},
		"nothing was there": {func(t *testing.T, pool *pgxpool.Pool, schema string) {
			t.Helper()
			if err := newMigrator(t, schema).Force(t.Context(), pool, migrations.Jobs, 0); err != nil {
				t.Fatal(err)
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgleasetest.Pool(t)
			const schema = "after"
			m := newMigrator(t, schema)
			c.before(t, pool, schema)
			release := block(t, pool, lockOf(schema))
			upped := asks(t, pool, "first", func(pool *pgxpool.Pool) error {
				_, err := m.Up(t.Context(), pool, migrations.Jobs)
				return err
			})
			downed := asks(t, pool, "second", func(pool *pgxpool.Pool) error {
				result, err := m.Down(t.Context(), pool, migrations.Jobs)
				if len(result.Applied) > 0 {
					err = errors.Join(err, fmt.Errorf("reverted %d", len(result.Applied)))
				}
				return err
			})
			release()
			if err := <-upped; err != nil {
				t.Errorf("up: %v", err)
			}
			if err := <-downed; !errors.Is(err, c.want) {
				t.Errorf("down: %v, want %v", err, c.want)
			}
			standsAt(t, pool, schema, latest)
			down(t, pool, schema, migrations.Jobs)
		})
	}
}

// The line went and came back to the same version while the Down waited.
func TestDownSeesThatTheLineWentAndCameBack(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	const schema = "back"
	up(t, pool, schema, migrations.Jobs)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), lockOf(schema)); err != nil {
		t.Fatal(err)
	}
	downed := asks(t, pool, "waits", func(pool *pgxpool.Pool) error {
		_, err := newMigrator(t, schema).Down(t.Context(), pool, migrations.Jobs)
		return err
	})
	if _, err := tx.Exec(t.Context(), "UPDATE back.migrations_jobs SET version = version"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-downed; !errors.Is(err, migrations.ErrOvertaken) || !strings.Contains(err.Error(), "nothing was reverted") {
		t.Errorf("down: %v", err)
	}
	standsAt(t, pool, schema, migrations.Latest(migrations.Jobs))
}

func TestTwoDownsAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	const schema = "twice"
	up(t, pool, schema, migrations.Jobs)
	release := block(t, pool, lockOf(schema))
	var downs []<-chan error
	for _, name := range []string{"first", "second"} {
		downs = append(downs, asks(t, pool, name, func(pool *pgxpool.Pool) error {
			_, err := newMigrator(t, schema).Down(t.Context(), pool, migrations.Jobs)
			return err
		}))
	}
	release()
	for _, done := range downs {
		if err := <-done; err != nil {
			t.Errorf("down: %v", err)
		}
	}
	if hasSchema(t, pool, schema) {
		t.Error("the schema is left")
	}
}

// Whoever is first, both come to an end, and the line stands where one of them left it.
func TestUpAndDownAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	const schema = "chase"
	m := newMigrator(t, schema)
	latest := migrations.Latest(migrations.Jobs)
	for range 8 {
		downed := make(chan error, 1)
		go func() {
			_, err := m.Down(t.Context(), pool, migrations.Jobs)
			downed <- err
		}()
		up(t, pool, schema, migrations.Jobs)
		err := <-downed
		state, lookErr := m.Version(t.Context(), pool, migrations.Jobs)
		switch {
		case lookErr != nil:
			t.Error(lookErr)
		case err != nil && !errors.Is(err, migrations.ErrOvertaken):
			t.Errorf("down: %v", err)
		case state.Version != latest && (err != nil || state.Version != 0):
			t.Errorf("the line stands at %d, down: %v", state.Version, err)
		}
	}
}

// A Down that fails half way has reverted nothing.
func TestDownIsOneTransaction(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	const schema = "whole"
	up(t, pool, schema, migrations.Jobs)
	want := dump(t, pool, schema)
	execute(t, pool, "CREATE VIEW public.theirs AS SELECT FROM whole.job") // of migration 1
	result, err := newMigrator(t, schema).Down(t.Context(), pool, migrations.Jobs)
	if failed := asError(t, err); failed.Version != 1 || failed.Statement == "" || len(result.Applied) != 0 {
		t.Errorf("down: %+v, %v", result, err)
	}
	standsAt(t, pool, schema, migrations.Latest(migrations.Jobs))
	if got := dump(t, pool, schema); got != want {
		t.Error("something was reverted")
	}
	execute(t, pool, "DROP VIEW public.theirs")
	down(t, pool, schema, migrations.Jobs)
}
