package pglease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// write returns work that leaves a trace.
func write(t *testing.T, by string) func(pgx.Tx) error {
	t.Helper()
	return func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO written (by) VALUES ($1)`, by)
		return err
	}
}

func TestGuardedTxCommits(t *testing.T) {
	t.Parallel()
	for _, level := range guardedLevels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool, a, b := guardSetUp(t)
			lease := acquire(t, a, "r")
			options := pglease.GuardTxOptions(pgx.TxOptions{IsoLevel: level})
			err := pglease.GuardedTx(t.Context(), pool, lease, func(tx pgx.Tx) error {
				// Renewed meanwhile: no level minds.
				run(t, pool, `UPDATE pglease.resource_lease SET expires_at = expires_at + interval '1 second'`)
				if _, err := b.TryAcquire(t.Context(), "r"); !errors.Is(err, pglease.ErrHeld) {
					t.Errorf("granted to another meanwhile: %v", err)
				}
				return write(t, "lease")(tx)
			}, options)
			if err != nil {
				t.Error(err)
			}
			if err := pglease.GuardedTokenTx(t.Context(), pool, lease.Token(), write(t, "token"), options); err != nil {
				t.Error(err)
			}
			if by := writtenBy(t, pool); len(by) != 2 {
				t.Errorf("written by %v", by)
			}
		})
	}
}

// All that is read under a snapshot is of the moment in which the lease was seen to be current.
func TestGuardedReads(t *testing.T) {
	t.Parallel()
	pool, a, _ := guardSetUp(t)
	lease := acquire(t, a, "r")
	err := pglease.GuardedTx(t.Context(), pool, lease, func(tx pgx.Tx) error {
		run(t, pool, `INSERT INTO written (by) VALUES ('somebody who holds no lease')`)
		if by := writtenBy(t, tx); len(by) != 0 {
			t.Errorf("read %v", by)
		}
		return nil
	}, pglease.GuardTxOptions(pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))
	if err != nil {
		t.Error(err)
	}
}

func TestGuardedTxKeepsNothing(t *testing.T) {
	t.Parallel()
	failure := errors.New("failure")
	for name, c := range map[string]struct {
		before, within func(t *testing.T, pool *pgxpool.Pool, l *pglease.Lease)
		returns        error
		want           []error
	}{
		"released before": {
			before: func(t *testing.T, _ *pgxpool.Pool, l *pglease.Lease) { t.Helper(); release(t, l) },
			want:   []error{pglease.ErrReleased},
		},
		"expired before": {
			before: func(t *testing.T, pool *pgxpool.Pool, _ *pglease.Lease) {
				t.Helper()
				pgleasetest.ExpireLease(t, pool, "r")
			},
			want: []error{pglease.ErrLost, pglease.ErrExpired},
		},
		"expired within": {
			within: func(t *testing.T, pool *pgxpool.Pool, _ *pglease.Lease) {
				t.Helper()
				pgleasetest.ExpireLease(t, pool, "r")
			},
			want: []error{pglease.ErrLost, pglease.ErrExpired},
		},
		"ended within": {
			within: func(t *testing.T, pool *pgxpool.Pool, _ *pglease.Lease) {
				t.Helper()
				run(t, pool, `UPDATE pglease.resource_lease SET ended_at = clock_timestamp()`)
			},
			want: []error{pglease.ErrLost, pglease.ErrReleased},
		},
		"failed": {returns: failure, want: []error{failure}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, a, _ := guardSetUp(t)
			lease := acquire(t, a, "r")
			if c.before != nil {
				c.before(t, pool, lease)
			}
			err := pglease.GuardedTx(t.Context(), pool, lease, func(tx pgx.Tx) error {
				if err := write(t, "a")(tx); err != nil {
					return err
				}
				if c.within != nil {
					c.within(t, pool, lease)
				}
				return c.returns
			})
			for _, want := range c.want {
				if !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			}
			if by := writtenBy(t, pool); len(by) != 0 {
				t.Errorf("written by %v", by)
			}
		})
	}
}

func TestGuardedTxSurvivesAPanic(t *testing.T) {
	t.Parallel()
	pool, a, _ := guardSetUp(t)
	lease := acquire(t, a, "r")
	func() {
		defer func() {
			if recover() != "panic" {
				t.Error("the panic did not go on")
			}
		}()
		_ = pglease.GuardedTx(t.Context(), pool, lease, func(tx pgx.Tx) error {
			_ = write(t, "a")(tx)
			panic("panic")
		})
	}()
	if by := writtenBy(t, pool); len(by) != 0 || pool.Stat().AcquiredConns() != 0 {
		t.Errorf("written by %v, %d connections are out", by, pool.Stat().AcquiredConns())
	}
}

// The function may not end the transaction, and may use savepoints.
func TestGuardedTxIsATransaction(t *testing.T) {
	t.Parallel()
	pool, a, _ := guardSetUp(t)
	lease := acquire(t, a, "r")
	err := pglease.GuardedTx(t.Context(), pool, lease, func(tx pgx.Tx) error {
		if tx.Commit(t.Context()) == nil {
			t.Error("ended from within")
		}
		undone := errors.New("undone")
		if err := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error { return errors.Join(write(t, "undone")(tx), undone) }); !errors.Is(err, undone) {
			t.Error(err)
		}
		if err := pgx.BeginFunc(t.Context(), tx, write(t, "savepoint")); err != nil {
			t.Error(err)
		}
		batch := &pgx.Batch{}
		batch.Queue(`INSERT INTO written (by) VALUES ('batch')`)
		if err := tx.SendBatch(t.Context(), batch).Close(); err != nil {
			t.Error(err)
		}
		_, err := tx.CopyFrom(t.Context(), pgx.Identifier{"written"}, []string{"by"}, pgx.CopyFromRows([][]any{{"copy"}}))
		return err
	})
	if by := writtenBy(t, pool); err != nil || len(by) != 3 {
		t.Errorf("%v, written by %v", err, by)
	}
}

// After a loss no statement of the function is sent any more, of whatever kind.
func TestGuardedTxStopsAtTheLoss(t *testing.T) {
	t.Parallel()
	pool, a, _ := guardSetUp(t)
	lease := acquire(t, a, "r")
	err := pglease.GuardedTx(t.Context(), pool, lease, func(tx pgx.Tx) error {
		ctx := t.Context()
		if err := a.Close(expired(t)); err == nil {
			t.Error("closed with an ended context")
		}
		<-lease.Done()
		rows, queryErr := tx.Query(ctx, `SELECT 1`)
		_, execErr := tx.Exec(ctx, `SELECT 1`)
		_, beginErr := tx.Begin(ctx)
		_, copyErr := tx.CopyFrom(ctx, pgx.Identifier{"written"}, []string{"by"}, pgx.CopyFromRows([][]any{{"copy"}}))
		results := tx.SendBatch(ctx, &pgx.Batch{})
		_, batchErr := results.Exec()
		_, collectErr := pgx.CollectRows(rows, pgx.RowTo[int])
		for what, err := range map[string]error{
			"Query": queryErr, "rows": collectErr, "Exec": execErr, "Begin": beginErr, "CopyFrom": copyErr,
			"QueryRow": tx.QueryRow(ctx, `SELECT 1`).Scan(new(int)),
			"batch":    batchErr, "batch row": results.QueryRow().Scan(new(int)), "batch's end": results.Close(),
		} {
			if !errors.Is(err, pglease.ErrLost) {
				t.Errorf("%s: got %v", what, err)
			}
		}
		return nil
	})
	if !errors.Is(err, pglease.ErrLost) {
		t.Errorf("got %v", err)
	}
}

func expired(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// The commit's reply is lost: nothing is claimed, neither that it was applied nor that it was not.
func TestGuardedTxTellsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, applied := range map[string]int{"reply lost": 1, "request lost": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, faults, pool := faulty(t, pglease.Config{})
			run(t, pool, `CREATE TABLE written (n bigint GENERATED ALWAYS AS IDENTITY, by text)`)
			lease := acquire(t, client, "r")
			tampered := faults.Pool(t, pool.Config().ConnString())
			commit := func(sql string) bool { return sql == "commit" }
			fault := faults.LoseNextReply
			if applied == 0 {
				fault = faults.FailNextSend
			}
			struck := fault(commit)
			err := pglease.GuardedTx(t.Context(), tampered, lease, write(t, "a"))
			<-struck.Done()
			if !errors.Is(err, pglease.ErrUnknownOutcome) || errors.Is(err, pglease.ErrLost) {
				t.Errorf("got %v", err)
			}
			if by := writtenBy(t, pool); len(by) != applied {
				t.Errorf("written by %v", by)
			}
		})
	}
}

// A commit that the database refused is known to have failed.
func TestGuardedTxTellsAFailedCommit(t *testing.T) {
	t.Parallel()
	pool, a, _ := guardSetUp(t)
	run(t, pool, `ALTER TABLE written ADD UNIQUE (by) DEFERRABLE INITIALLY DEFERRED; INSERT INTO written (by) VALUES ('a')`)
	err := pglease.GuardedTx(t.Context(), pool, acquire(t, a, "r"), write(t, "a"))
	if code(err) != "23505" || errors.Is(err, pglease.ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
	err = pglease.GuardedTx(t.Context(), pool, a.Leases()[0], func(tx pgx.Tx) error {
		_, _ = tx.Exec(t.Context(), `SELECT 1/0`) // and the function does not tell
		return nil
	})
	if err == nil || errors.Is(err, pglease.ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
}

// grantedWithin fails the test unless the next owner gets the resource no more than a second after
// the lease of the one that stopped, of which it had so much left, would have ended.
func grantedWithin(t *testing.T, b *pglease.Client, stopped time.Time, remaining time.Duration) *pglease.Lease {
	t.Helper()
	next, err := b.Acquire(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	if late := time.Since(stopped) - remaining; late > time.Second {
		t.Errorf("a holder that stopped with %v left kept the next owner out for %v more", remaining, late)
	}
	return next
}

// The holder's whole process stops within GuardedTx: its connections fall silent, its session stays.
func TestAFrozenHolderDelaysATakeoverByNoMoreThanItsTrust_I11(t *testing.T) {
	t.Parallel()
	client, faults, pool := faulty(t, pglease.Config{TTL: 2 * time.Second})
	run(t, pool, `CREATE TABLE written (n bigint GENERATED ALWAYS AS IDENTITY, by text)`)
	b := newClient(t, pool, pglease.Config{TTL: 2 * time.Second, PollEvery: 20 * time.Millisecond})
	lease := acquire(t, client, "r")
	err := pglease.GuardedTx(t.Context(), faults.Pool(t, pool.Config().ConnString()), lease, func(tx pgx.Tx) error {
		if err := write(t, "a")(tx); err != nil {
			return err
		}
		faults.Freeze()
		grantedWithin(t, b, time.Now(), readRow(t, pool, "r").remaining)
		faults.Close()
		return nil
	})
	if !errors.Is(err, pglease.ErrLost) {
		t.Errorf("got %v", err)
	}
	if by := writtenBy(t, pool); len(by) != 0 {
		t.Errorf("written by %v", by)
	}
}

// The holder stops when most of its lease has passed, right after a statement: Postgres counts the
// idle time from there.
func TestAHolderThatStopsLateDelaysATakeoverByNoMoreThanItsTrust(t *testing.T) {
	t.Parallel()
	client, faults, pool := faulty(t, pglease.Config{TTL: 3 * time.Second})
	b := newClient(t, pool, pglease.Config{TTL: 3 * time.Second, PollEvery: 20 * time.Millisecond})
	token := acquire(t, client, "r").Token()
	faults.Freeze() // no renewals
	err := pglease.GuardedTokenTx(t.Context(), pool, token, func(tx pgx.Tx) error {
		remaining := 3 * time.Second
		for remaining > 400*time.Millisecond {
			if err := tx.QueryRow(t.Context(), `SELECT expires_at - clock_timestamp() FROM pglease.resource_lease`).Scan(&remaining); err != nil {
				return err
			}
		}
		grantedWithin(t, b, time.Now(), remaining)
		_, err := tx.Exec(t.Context(), `SELECT 1`)
		return err
	})
	faults.Close()
	if !errors.Is(err, pglease.ErrLost) || fence.IsStale(err) {
		t.Errorf("got %v", err)
	}
}
