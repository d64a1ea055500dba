package pglease_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// A function that ends the transaction itself is told so: it is not nil, as if its work had been
// committed under the last check, and what it sends after that is not committed by itself.
func TestGuardedTxTellsAFunctionThatEndsIt(t *testing.T) {
	t.Parallel()
	statement := func(sql string) func(*testing.T, pgx.Tx) error {
		return func(t *testing.T, tx pgx.Tx) error {
			t.Helper()
			_, err := tx.Exec(t.Context(), sql)
			return err
		}
	}
	for name, c := range map[string]struct {
		end  func(*testing.T, pgx.Tx) error
		want []string // what is there afterwards
	}{
		"ROLLBACK": {end: statement(`ROLLBACK`)},
		"COMMIT":   {end: statement(`COMMIT`), want: []string{"before"}},
		"Rollback, whose error is not looked at": {end: func(t *testing.T, tx pgx.Tx) error {
			t.Helper()
			_ = tx.Rollback(t.Context())
			return nil
		}},
	} {
		for _, level := range guardedLevels {
			t.Run(name+", "+string(level), func(t *testing.T) {
				t.Parallel()
				pool, a, _ := guardSetUp(t)
				err := pglease.GuardedTx(t.Context(), pool, acquire(t, a, "r"), func(tx pgx.Tx) error {
					if err := errors.Join(write(t, "before")(tx), c.end(t, tx)); err != nil {
						return err
					}
					_ = write(t, "after")(tx)
					return nil
				}, pglease.GuardTxOptions(pgx.TxOptions{IsoLevel: level}))
				if err == nil || !strings.Contains(err.Error(), "ends the transaction itself") || errors.Is(err, pglease.ErrLost) {
					t.Errorf("got %v", err)
				}
				if by := writtenBy(t, pool); strings.Join(by, " ") != strings.Join(c.want, " ") {
					t.Errorf("written by %v, want %v", by, c.want)
				}
			})
		}
	}
}

// A transaction that was given on after its end is closed, whoever has its connection now.
func TestGuardedTxIsClosedAfterwards(t *testing.T) {
	t.Parallel()
	pool, a, _ := guardSetUp(t)
	var kept pgx.Tx
	if err := pglease.GuardedTx(t.Context(), pool, acquire(t, a, "r"), func(tx pgx.Tx) error { kept = tx; return nil }); err != nil {
		t.Fatal(err)
	}
	if err := write(t, "late")(kept); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("got %v", err)
	}
}

// A pool to another database than that of the leases is refused, and the error leads there.
func TestGuardedTxInTheWrongDatabase(t *testing.T) {
	t.Parallel()
	pool, a, _ := guardSetUp(t)
	lease, other := acquire(t, a, "r"), pgleasetest.Pool(t)
	err := pglease.GuardedTx(t.Context(), other, lease, func(pgx.Tx) error { t.Error("it was let in"); return nil })
	if !errors.Is(err, pglease.ErrLost) || !strings.Contains(err.Error(), "kept elsewhere") {
		t.Errorf("got %v", err)
	}
	if err := pglease.GuardedTx(t.Context(), pool, lease, write(t, "a")); err != nil {
		t.Error(err)
	}
}

// READ UNCOMMITTED is READ COMMITTED to Postgres: the last check sees what happened meanwhile.
func TestGuardedTxReadUncommitted(t *testing.T) {
	t.Parallel()
	pool, a, _ := guardSetUp(t)
	err := pglease.GuardedTx(t.Context(), pool, acquire(t, a, "r"), func(tx pgx.Tx) error {
		run(t, pool, `UPDATE pglease.resource_lease SET ended_at = clock_timestamp()`)
		return write(t, "a")(tx)
	}, pglease.GuardTxOptions(pgx.TxOptions{IsoLevel: pgx.ReadUncommitted}))
	if by := writtenBy(t, pool); !errors.Is(err, pglease.ErrReleased) || len(by) != 0 {
		t.Errorf("got %v, written by %v", err, by)
	}
}

// The holder stops while it reads a result that is larger than what the network holds. Its session
// is then not idle but busy with sending.
func TestAHolderThatStopsReadingDelaysATakeoverByNoMoreThanItsTrust(t *testing.T) {
	t.Parallel()
	client, faults, pool := faulty(t, pglease.Config{TTL: 2 * time.Second})
	run(t, pool, `CREATE TABLE written (n bigint GENERATED ALWAYS AS IDENTITY, by text)`)
	b := newClient(t, pool, pglease.Config{TTL: 2 * time.Second, PollEvery: 20 * time.Millisecond})
	token := acquire(t, client, "r").Token()
	faults.Freeze() // no renewals
	err := pglease.GuardedTokenTx(t.Context(), pool, token, func(tx pgx.Tx) error {
		if err := write(t, "a")(tx); err != nil {
			return err
		}
		rows, err := tx.Query(t.Context(), `SELECT repeat('x', 10000) FROM generate_series(1, 10000)`)
		if err != nil {
			return err
		}
		defer rows.Close()
		rows.Next()
		grantedWithin(t, b, time.Now(), readRow(t, pool, "r").remaining)
		return nil
	})
	faults.Close()
	if !errors.Is(err, pglease.ErrLost) || fence.IsStale(err) {
		t.Errorf("got %v", err)
	}
	if by := writtenBy(t, pool); len(by) != 0 {
		t.Errorf("written by %v", by)
	}
}

// The source of a COPY may take its time; the lease is looked at with each row.
func TestGuardedTxStopsACopyAtTheLoss(t *testing.T) {
	t.Parallel()
	client, faults, pool := faulty(t, pglease.Config{TTL: time.Second})
	run(t, pool, `CREATE TABLE written (n bigint GENERATED ALWAYS AS IDENTITY, by text)`)
	lease := acquire(t, client, "r")
	faults.Freeze() // no renewals
	rows := 0
	err := pglease.GuardedTx(t.Context(), pool, lease, func(tx pgx.Tx) error {
		_, err := tx.CopyFrom(t.Context(), pgx.Identifier{"written"}, []string{"by"}, pgx.CopyFromFunc(func() ([]any, error) {
			rows++
			if rows == 3 {
				<-lease.Done()
			}
			return []any{"copy"}, nil // and never comes to an end
		}))
		return err
	})
	faults.Close()
	if !errors.Is(err, pglease.ErrLost) || rows != 3 {
		t.Errorf("got %v after %d rows", err, rows)
	}
	if by := writtenBy(t, pool); len(by) != 0 {
		t.Errorf("written by %v", by)
	}
}
