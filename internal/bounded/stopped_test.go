package bounded_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/bounded"
	"github.com/pglease/pglease/internal/pgbouncer"
	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// soon is a bound for tests: longer than anything here takes, on a slow machine too.
const soon = 2 * time.Second

// A client that sends nothing more, or reads nothing more, keeps others out for no longer than the
// bound. Its next statement fails, and its connection is not used again.
func TestAStoppedClientIsEnded(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*testing.T, pgx.Tx) func() error{
		"between statements": func(*testing.T, pgx.Tx) func() error { return func() error { return nil } },
		"within a result": func(t *testing.T, tx pgx.Tx) func() error {
			t.Helper()
			rows, err := tx.Query(t.Context(), "SELECT repeat('x', 10000) FROM generate_series(1, 10000)")
			if err != nil {
				t.Fatal(err)
			}
			return func() error {
				for rows.Next() {
				}
				return rows.Err()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgleasetest.URL(t)
			keepsNobodyOut(t, poolOf(t, url, pgx.QueryExecModeCacheStatement, nil), poolOf(t, url, pgx.QueryExecModeExec, nil), stop)
		})
	}
}

// keepsNobodyOut has one stop in a transaction, and another wait for its locks.
func keepsNobodyOut(t *testing.T, one, other *pgxpool.Pool, stop func(*testing.T, pgx.Tx) func() error) {
	t.Helper()
	if _, err := other.Exec(t.Context(), "CREATE TABLE t (x int)"); err != nil {
		t.Fatal(err)
	}
	var conn *pgx.Conn
	err := bounded.Tx(t.Context(), one, soon, func(tx pgx.Tx) error {
		conn = tx.Conn()
		if _, err := tx.Exec(t.Context(), "INSERT INTO t VALUES (1); LOCK TABLE t"); err != nil {
			t.Fatal(err)
		}
		goOn := stop(t, tx)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := other.Exec(ctx, "INSERT INTO t VALUES (2)"); err != nil {
			t.Errorf("another: %v", err)
		}
		return goOn()
	})
	if !lost(err) || !conn.IsClosed() {
		t.Errorf("got %v; the connection is closed: %v", err, conn.IsClosed())
	}
	var sum int
	if err := one.QueryRow(t.Context(), "SELECT sum(x) FROM t").Scan(&sum); err != nil || sum != 2 {
		t.Errorf("afterwards: the sum is %d, %v", sum, err)
	}
}

// A pooler that shares sessions out passes the message on as it is, gives the session back without the
// bound, and does not hide from its client that the transaction was ended.
func TestBehindAPooler(t *testing.T) {
	t.Parallel()
	server, err := postgres.Start(t.Context(), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, server)
	pooler, err := pgbouncer.Start(t.Context(), server, pgbouncer.Transaction, "default_pool_size = 2")
	if errors.Is(err, pgbouncer.ErrNotFound) && os.Getenv("PGLEASE_REQUIRE_ALL") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, pooler)
	pool := poolOf(t, pooler.URL(), pgx.QueryExecModeExec, nil)
	for range 4 {
		tx, err := bounded.Begin(t.Context(), pool, bounded.Own)
		if got := boundsOf(t, tx, err); got != (bounds{"5s", "5000", "read committed"}) {
			t.Errorf("bounds are %+v", got)
		}
		tx, err = pool.Begin(t.Context())
		if got := boundsOf(t, tx, err); got != (bounds{"0", "0", "read committed"}) {
			t.Errorf("left behind: %+v", got)
		}
	}
	keepsNobodyOut(t, pool, poolOf(t, server.URL(), pgx.QueryExecModeExec, nil), func(*testing.T, pgx.Tx) func() error {
		return func() error { return nil }
	})
}

func stopAtEnd(t *testing.T, ends interface{ Stop() error }) {
	t.Helper()
	t.Cleanup(func() {
		if err := ends.Stop(); err != nil {
			t.Error(err)
		}
	})
}
