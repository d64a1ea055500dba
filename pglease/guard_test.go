package pglease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

var guardedLevels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// guardSetUp returns two clients on a database that also has a table to protect.
func guardSetUp(t *testing.T) (pool *pgxpool.Pool, a, b *pglease.Client) {
	t.Helper()
	pool = pgleasetest.Pool(t)
	run(t, pool, `CREATE TABLE written (n bigint GENERATED ALWAYS AS IDENTITY, by text)`)
	return pool, newClient(t, pool, pglease.Config{Owner: "a"}), newClient(t, pool, pglease.Config{Owner: "b", PollEvery: 20 * time.Millisecond})
}

func run(tb testing.TB, db fence.DB, sql string, args ...any) {
	tb.Helper()
	if _, err := db.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatal(err)
	}
}

func writtenBy(tb testing.TB, db fence.DB) (by []string) {
	tb.Helper()
	if err := db.QueryRow(tb.Context(), `SELECT coalesce(array_agg(by ORDER BY n), '{}') FROM written`).Scan(&by); err != nil {
		tb.Fatal(err)
	}
	return by
}

// begin returns a transaction that the test's end rolls back.
func begin(tb testing.TB, pool *pgxpool.Pool, level pgx.TxIsoLevel) pgx.Tx {
	tb.Helper()
	tx, err := pool.BeginTx(tb.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = tx.Rollback(context.Background()) }) //nolint:usetesting // the test's own is over by then
	return tx
}

func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

func TestGuardHoldsOffATakeoverAndLetsRenewalsPass(t *testing.T) {
	t.Parallel()
	for _, level := range guardedLevels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool, a, b := guardSetUp(t)
			lease := acquire(t, a, "r")
			tx := begin(t, pool, level)
			if err := lease.Guard(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
			run(t, tx, `INSERT INTO written (by) VALUES ('a')`)
			before := readRow(t, pool, "r").expires
			run(t, pool, `UPDATE pglease.resource_lease SET expires_at = expires_at + interval '1 second'`) // as a renewal
			if after := readRow(t, pool, "r").expires; !after.After(before) {
				t.Error("not renewed")
			}
			pgleasetest.ExpireLease(t, pool, "r")
			if _, err := b.TryAcquire(t.Context(), "r"); !errors.Is(err, pglease.ErrHeld) {
				t.Errorf("taken over before the guarded transaction ended: %v", err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			next, err := b.TryAcquire(t.Context(), "r")
			if err != nil || next.Token().Fence() <= lease.Token().Fence() {
				t.Fatalf("%v, %v", next, err)
			}
			if by := writtenBy(t, pool); len(by) != 1 {
				t.Errorf("written by %v", by)
			}
		})
	}
}

// Each guard of the statement, alone against a token that is right in all else, has no row; and
// having refused, the guard holds up nobody.
func TestGuardHasZeroRows(t *testing.T) {
	t.Parallel()
	pool, a, b := guardSetUp(t)
	lease := acquire(t, a, "r")
	acquire(t, a, "other")
	right := lease.Token()
	tokenWith := func(number int64, id fence.LeaseID, resource string) fence.Token {
		token, err := fence.Parse(fmt.Sprintf("%d:%v:%s", number, id, resource))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	id := right.LeaseID()
	id[3]++
	for name, c := range map[string]struct {
		token fence.Token
		stale bool
	}{
		"another resource":    {tokenWith(right.Fence(), right.LeaseID(), "other"), false},
		"no such resource":    {tokenWith(right.Fence(), right.LeaseID(), "none"), false},
		"another lease":       {tokenWith(right.Fence(), id, "r"), true},
		"lower fence":         {tokenWith(right.Fence()-1, right.LeaseID(), "r"), true},
		"higher fence":        {tokenWith(right.Fence()+1, right.LeaseID(), "r"), false},
		"lower, other lease":  {tokenWith(right.Fence()-1, id, "r"), true},
		"higher, other lease": {tokenWith(right.Fence()+1, id, "r"), false},
	} {
		tx := begin(t, pool, pgx.ReadCommitted)
		err := pglease.GuardToken(t.Context(), tx, c.token)
		if !errors.Is(err, pglease.ErrLost) || (name != "another resource" && fence.IsStale(err) != c.stale) {
			t.Errorf("%s: got %v", name, err)
		}
		run(t, tx, `SELECT 1`) // still usable
		if err := tx.Commit(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	tx := begin(t, pool, pgx.ReadCommitted)
	if err := pglease.GuardToken(t.Context(), tx, right); err != nil {
		t.Errorf("the right token: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	pgleasetest.ExpireLease(t, pool, "r")
	tx = begin(t, pool, pgx.ReadCommitted)
	if err := pglease.GuardToken(t.Context(), tx, right); !errors.Is(err, pglease.ErrExpired) || fence.IsStale(err) {
		t.Errorf("expired: got %v", err)
	}
	if _, err := b.TryAcquire(t.Context(), "r"); err != nil {
		t.Errorf("a guard that refused holds the row: %v", err)
	}
	if err := pglease.GuardToken(t.Context(), tx, fence.Token{}); !errors.Is(err, fence.ErrInvalidToken) {
		t.Errorf("zero token: %v", err)
	}
}

func TestGuardTellsTheCause(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end   func(t *testing.T, pool *pgxpool.Pool, b *pglease.Client)
		cause error
		stale bool
	}{
		"expired": {func(t *testing.T, pool *pgxpool.Pool, _ *pglease.Client) {
			t.Helper()
			pgleasetest.ExpireLease(t, pool, "r")
		}, pglease.ErrExpired, false},
		"taken over": {func(t *testing.T, pool *pgxpool.Pool, b *pglease.Client) {
			t.Helper()
			pgleasetest.ExpireLease(t, pool, "r")
			acquire(t, b, "r")
		}, pglease.ErrTakenOver, true},
		"broken": {func(t *testing.T, pool *pgxpool.Pool, _ *pglease.Client) {
			t.Helper()
			run(t, pool, `INSERT INTO pglease.lease_history (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended, ended_by, reason)
				SELECT resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, clock_timestamp(), 'broken', 'ops', 'stuck' FROM pglease.resource_lease`)
			run(t, pool, `UPDATE pglease.resource_lease SET ended_at = clock_timestamp()`)
		}, pglease.ErrBroken, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, a, b := guardSetUp(t)
			token := acquire(t, a, "r").Token()
			c.end(t, pool, b)
			err := pglease.GuardToken(t.Context(), begin(t, pool, pgx.ReadCommitted), token)
			var lost *pglease.LostError
			if !errors.As(err, &lost) || !errors.Is(err, pglease.ErrLost) || !errors.Is(err, c.cause) || fence.IsStale(err) != c.stale {
				t.Fatalf("got %v", err)
			}
			if errors.Is(c.cause, pglease.ErrBroken) && (lost.By != "ops" || lost.Reason != "stuck") {
				t.Errorf("got %+v", lost)
			}
			if stale := fence.AsStale(err); c.stale && (stale == nil || stale.GreatestOwner != "b" || stale.GreatestFence <= token.Fence() || stale.Since.IsZero()) {
				t.Errorf("got %+v", stale)
			}
		})
	}
}

// A transaction that was opened while the lease was current does not carry that time along: either
// the guard refuses, or nobody has been granted the resource, nor is before the transaction ends.
func TestGuardInAnOldTransaction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, pool *pgxpool.Pool, a, b *pglease.Client)
		refused   bool // at every level
		current   bool // the lease still is
	}{
		"taken over": {func(t *testing.T, pool *pgxpool.Pool, _, b *pglease.Client) {
			t.Helper()
			pgleasetest.ExpireLease(t, pool, "r")
			acquire(t, b, "r")
		}, true, false},
		"renewed and taken over": {func(t *testing.T, pool *pgxpool.Pool, _, b *pglease.Client) {
			t.Helper()
			run(t, pool, `UPDATE pglease.resource_lease SET expires_at = expires_at + interval '1 second'`)
			pgleasetest.ExpireLease(t, pool, "r")
			acquire(t, b, "r")
		}, true, false},
		"released": {func(t *testing.T, _ *pgxpool.Pool, a, _ *pglease.Client) {
			t.Helper()
			release(t, a.Leases()[0])
		}, false, false},
		"renewed": {func(t *testing.T, pool *pgxpool.Pool, _, _ *pglease.Client) {
			t.Helper()
			run(t, pool, `UPDATE pglease.resource_lease SET expires_at = expires_at + interval '1 second'`)
		}, false, true},
	} {
		for _, level := range guardedLevels {
			t.Run(fmt.Sprintf("%s, %s", name, level), func(t *testing.T) {
				t.Parallel()
				pool, a, b := guardSetUp(t)
				token := acquire(t, a, "r").Token()
				tx := begin(t, pool, level)
				run(t, tx, `SELECT FROM pglease.resource_lease`) // takes the snapshot
				c.meanwhile(t, pool, a, b)
				err := pglease.GuardToken(t.Context(), tx, token)
				if err != nil {
					if !errors.Is(err, pglease.ErrLost) && (level == pgx.ReadCommitted || code(err) != "40001") || c.current {
						t.Errorf("got %v", err)
					}
					return
				}
				if c.refused || level == pgx.ReadCommitted && !c.current {
					t.Fatal("accepted")
				}
				if c.current {
					pgleasetest.ExpireLease(t, pool, "r")
				}
				if _, err := b.TryAcquire(t.Context(), "r"); !errors.Is(err, pglease.ErrHeld) {
					t.Errorf("granted while the guarded transaction is open: %v", err)
				}
			})
		}
	}
}

// A lease that nobody touched since the snapshot was taken can only be told by the clock.
func TestGuardReadsTheClockNotTheTransaction_T1(t *testing.T) {
	t.Parallel()
	for _, level := range guardedLevels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool, a, _ := guardSetUp(t)
			token := acquire(t, a, "r", pglease.WithTTL(time.Second)).Token()
			run(t, pool, `UPDATE pglease.resource_lease SET lease_id = lease_id, ttl = '1 millisecond'`) // renewals move nothing
			tx := begin(t, pool, level)
			for current := true; current; {
				if err := tx.QueryRow(t.Context(), `SELECT expires_at > clock_timestamp() FROM pglease.resource_lease`).Scan(&current); err != nil {
					t.Fatal(err)
				}
			}
			if err := pglease.GuardToken(t.Context(), tx, token); !errors.Is(err, pglease.ErrExpired) && code(err) != "40001" {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The case that no watermark can refuse: the data has never heard of the newer owner.
func TestFirstTouch(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t, migrations.Fence)
	a, b := newClient(t, pool, pglease.Config{}), newClient(t, pool, pglease.Config{})
	old := acquire(t, a, "r").Token()
	pgleasetest.ExpireLease(t, pool, "r")
	next := acquire(t, b, "r").Token()

	// The untouched watermark takes the expired owner's token, as its documentation says ...
	tx := begin(t, pool, pgx.ReadCommitted)
	if _, err := fence.Advance(t.Context(), tx, old, fence.Op{}); err != nil {
		t.Errorf("watermark alone: %v", err)
	}
	// ... and the guard does not.
	if err := pglease.GuardToken(t.Context(), tx, old); !errors.Is(err, pglease.ErrLost) || !fence.IsStale(err) {
		t.Errorf("guard: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Once the newer owner has established itself, the watermark refuses too.
	if err := fence.Establish(t.Context(), pool, next); err != nil {
		t.Fatal(err)
	}
	tx = begin(t, pool, pgx.ReadCommitted)
	if _, err := fence.Advance(t.Context(), tx, old, fence.Op{}); !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("watermark, established: %v", err)
	}
}

func TestGuardBoundsTheTransaction(t *testing.T) {
	t.Parallel()
	pool, a, _ := guardSetUp(t)
	lease := acquire(t, a, "r")
	for name, c := range map[string]struct {
		before     string
		lock, idle string // empty: what the lease has left
	}{
		"defaults": {`SELECT 1`, "", ""},
		"stricter": {`SET LOCAL lock_timeout = '7s'; SET LOCAL idle_in_transaction_session_timeout = '1234ms'`, "7s", "1234ms"},
		"looser":   {`SET LOCAL lock_timeout = '2h'; SET LOCAL idle_in_transaction_session_timeout = '1d'`, "", ""},
		"one only": {`SET LOCAL lock_timeout = '1min'; SET LOCAL idle_in_transaction_session_timeout = '1s'`, "", "1s"},
	} {
		tx := begin(t, pool, pgx.ReadCommitted)
		run(t, tx, c.before)
		if err := lease.Guard(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		var lock, idle string
		var lockBound, idleBound bool
		err := tx.QueryRow(t.Context(), `SELECT s.l, s.i, s.l::interval BETWEEN '1 second' AND '30 seconds', s.i::interval BETWEEN '1 second' AND '30 seconds'
			FROM (SELECT current_setting('lock_timeout') AS l, current_setting('idle_in_transaction_session_timeout') AS i) AS s`).Scan(&lock, &idle, &lockBound, &idleBound)
		if err != nil {
			t.Fatal(err)
		}
		if !lockBound || !idleBound || (c.lock != "" && lock != c.lock) || (c.idle != "" && idle != c.idle) {
			t.Errorf("%s: lock_timeout %s, idle timeout %s", name, lock, idle)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var after string
	if err := pool.QueryRow(t.Context(), `SELECT current_setting('lock_timeout') || current_setting('idle_in_transaction_session_timeout') || current_setting('tcp_user_timeout')`).Scan(&after); err != nil || after != "000" {
		t.Errorf("the session is left with %s, %v", after, err)
	}
}
