package reportstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

// overlap has first publish in an open transaction, second publish meanwhile and wait for it, and
// then first commit or roll back. It returns what second was told.
func overlap(t *testing.T, level string, first, second fence.Token, expected int64, commit bool, published bool) (*reportstore.Store, error) {
	t.Helper()
	pool := withSettings(t, map[string]string{"default_transaction_isolation": level})
	store := newStore(t, pool)
	if published {
		publish(t, store, token(t, 1), "before", 0, 1)
	}
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) // after a commit it has nothing to do
	if _, err := store.PublishTx(t.Context(), tx, first, reportstore.Report{ID: july, Body: []byte("first"), ExpectedVersion: expected}); err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	go func() {
		_, err := store.Publish(t.Context(), second, reportstore.Report{ID: july, Body: []byte("second"), ExpectedVersion: reportstore.AnyVersion})
		told <- err
	}()
	for waiting := false; !waiting; {
		const query = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`
		if err := pool.QueryRow(t.Context(), query).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	if commit {
		err = tx.Commit(t.Context())
	} else {
		err = tx.Rollback(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return store, <-told
}

// A write that waited for a rival is judged by what the rival left, not by what the statement saw
// when it began; also where both make the report, and neither meets a unique violation.
func TestWaitingForARival(t *testing.T) {
	t.Parallel()
	for _, level := range isolationLevels {
		for _, published := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, published before: %v", level, published), func(t *testing.T) {
				t.Parallel()
				waitingForARival(t, level, published)
			})
		}
	}
}

func waitingForARival(t *testing.T, level string, published bool) {
	t.Helper()
	var before int64
	if published {
		before = 1
	}
	t.Run("older waits for newer", func(t *testing.T) {
		t.Parallel()
		store, err := overlap(t, level, token(t, 42), token(t, 41), before, true, published)
		if !errors.Is(err, fence.ErrStaleOwner) {
			t.Errorf("got %v", err)
		}
		holds(t, store, "first", before+1, 42)
		rejected(t, store, 1)
	})
	t.Run("newer waits for older", func(t *testing.T) {
		t.Parallel()
		store, err := overlap(t, level, token(t, 41), token(t, 42), before, true, published)
		if err != nil {
			t.Error(err)
		}
		holds(t, store, "second", before+2, 42)
	})
	t.Run("twin waits for twin", func(t *testing.T) {
		t.Parallel()
		store, err := overlap(t, level, token(t, 42), tokenOf(t, july, 42, 7), before, true, published)
		if !errors.Is(err, fence.ErrStaleOwner) {
			t.Errorf("got %v", err)
		}
		holds(t, store, "first", before+1, 42)
	})
	t.Run("newer rolls back", func(t *testing.T) {
		t.Parallel()
		store, err := overlap(t, level, token(t, 42), token(t, 41), before, false, published)
		if err != nil {
			t.Error(err)
		}
		holds(t, store, "second", before+1, 41)
	})
}
