//go:build unix

package migrations_test

import (
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// A migrator that is stopped in the middle has its turn taken from it. When it goes on, it says so.
func TestAMigratorThatStops(t *testing.T) {
	t.Parallel()
	connString := pgleasetest.URL(t)
	pool, err := pgxpool.New(t.Context(), connString)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	release := block(t, pool, "LOCK TABLE pg_catalog.pg_trigger IN SHARE MODE")
	stopped := start(t, connString, "stopped")
	until(t, "it is in the middle of the tables", func() bool { return waiting(t, pool, "stopped", "relation") == 1 })
	if err := stopped.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	next := start(t, connString, "next")
	until(t, "the next one waits for its turn", func() bool { return waiting(t, pool, "next", "advisory") == 1 })
	release()
	until(t, "the server has ended its session", func() bool { return sessions(t, pool, "stopped") == 0 })
	next.mustSucceed(t)
	if err := stopped.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := stopped.Wait(); err == nil {
		t.Error("the stopped one knows nothing of it")
	}
	state, err := newMigrator(t, crowded).Version(t.Context(), pool, migrations.Lease)
	if want := migrations.Latest(migrations.Lease); err != nil || state.Version != want || state.Dirty {
		t.Errorf("the line stands at %+v, %v", state, err)
	}
}
