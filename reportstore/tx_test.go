package reportstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

func TestPublishTxCountsWhenItCommits(t *testing.T) {
	t.Parallel()
	pool, store := setUp(t)
	mustExec(t, pool, `CREATE TABLE sent (report text)`)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `INSERT INTO sent VALUES ($1)`, july); err != nil {
			return err
		}
		done, err := store.PublishTx(t.Context(), tx, token(t, 41), reportstore.Report{ID: july, Body: []byte("one")})
		if err == nil && done.Version != 1 {
			t.Errorf("got %+v", done)
		}
		if _, err := store.Read(t.Context(), july); !errors.Is(err, reportstore.ErrNotFound) {
			t.Errorf("seen before the commit: %v", err)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	holds(t, store, "one", 1, 41)
	if n := count(t, pool, `SELECT count(*) FROM sent`); n != 1 {
		t.Errorf("%d rows beside it, want 1", n)
	}
}

func TestPublishTxRolledBack(t *testing.T) {
	t.Parallel()
	pool, store := setUp(t)
	publish(t, store, token(t, 41), "one", 0, 1)
	undone := errors.New("undone")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := store.PublishTx(t.Context(), tx, token(t, 42), reportstore.Report{ID: july, Body: []byte("two"), ExpectedVersion: 1}); err != nil {
			return err
		}
		return undone
	})
	if !errors.Is(err, undone) {
		t.Fatal(err)
	}
	holds(t, store, "one", 1, 41)
	publish(t, store, token(t, 41), "still mine", 1, 2)
	if n := len(history(t, store)); n != 2 {
		t.Errorf("%d versions, want 2", n)
	}
}

// A refusal is an answer, not a failure: the caller's transaction goes on.
func TestRefusalLeavesTheTransactionUsable_U6(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool, store := setUp(t)
			mustExec(t, pool, `CREATE TABLE sent (report text)`)
			publish(t, store, token(t, 42), "one", 0, 1)
			err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				_, err := store.PublishTx(t.Context(), tx, token(t, 41), reportstore.Report{ID: july, Body: []byte("late"), ExpectedVersion: 1})
				if !errors.Is(err, fence.ErrStaleOwner) {
					t.Errorf("stale: got %v", err)
				}
				_, err = store.PublishTx(t.Context(), tx, token(t, 42), reportstore.Report{ID: july, Body: []byte("x"), ExpectedVersion: 9})
				if !errors.Is(err, reportstore.ErrConflict) {
					t.Errorf("conflict: got %v", err)
				}
				for range 2 { // the second is a repetition, within the transaction too
					p, err := store.PublishTx(t.Context(), tx, token(t, 42), reportstore.Report{ID: july, Body: []byte("two"), ExpectedVersion: 1})
					if err != nil || p.Version != 2 {
						t.Errorf("got %+v, %v", p, err)
					}
				}
				_, err = tx.Exec(t.Context(), `INSERT INTO sent VALUES ('x')`)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			holds(t, store, "two", 2, 42)
			rejected(t, store, 2)
		})
	}
}

func TestRefusalRolledBackIsNotRecorded(t *testing.T) {
	t.Parallel()
	pool, store := setUp(t)
	publish(t, store, token(t, 42), "one", 0, 1)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := store.PublishTx(t.Context(), tx, token(t, 41), reportstore.Report{ID: july, Body: []byte("late")})
		return err
	})
	if !errors.Is(err, fence.ErrStaleOwner) {
		t.Fatal(err)
	}
	rejected(t, store, 0)
}

// In the caller's transaction a serialization failure is the caller's: only it can run the whole again.
func TestSerializationFailureGoesToTheCaller(t *testing.T) {
	t.Parallel()
	pool, store := setUp(t)
	publish(t, store, token(t, 41), "one", 0, 1)
	for _, first := range []string{july, "report/new"} {
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `SELECT FROM pglease.reports`); err != nil { // takes the snapshot
			t.Fatal(err)
		}
		rival := reportstore.Report{ID: first, Body: []byte("rival"), ExpectedVersion: reportstore.AnyVersion}
		if _, err := store.Publish(t.Context(), tokenOf(t, first, 42, 42), rival); err != nil {
			t.Fatal(err)
		}
		_, err = store.PublishTx(t.Context(), tx, tokenOf(t, first, 43, 43), reportstore.Report{ID: first, Body: []byte("x"), ExpectedVersion: reportstore.AnyVersion})
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "40001" || refusal(err) {
			t.Errorf("%s: got %v", first, err)
		}
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}
