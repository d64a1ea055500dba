package jobs_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/jobs"
)

func TestSwapTellsOtherStateFromGone(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec(`CREATE TABLE "In""voice" (number text PRIMARY KEY, "State" text)`)
	b.exec(`INSERT INTO "In""voice" VALUES ('a', 'open'), ('b', NULL)`)
	s := jobs.States{Table: pgx.Identifier{"public", `In"voice`}, ID: "number", State: "State"}
	if err := s.Swap(t.Context(), b.pool, "a", "open", "paid"); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		var told *jobs.StateError
		err := s.Swap(t.Context(), tx, "a", "open", "void")
		if !errors.Is(err, jobs.ErrNotInState) || errors.Is(err, jobs.ErrGone) || !errors.As(err, &told) || told.Actual != "paid" {
			t.Errorf("another state: %v", err)
		}
		if err := s.Swap(t.Context(), tx, "b", "open", "void"); !errors.Is(err, jobs.ErrNotInState) {
			t.Errorf("no state: %v", err)
		}
		if err := s.Swap(t.Context(), tx, "c", "open", "void"); !errors.Is(err, jobs.ErrGone) || errors.Is(err, jobs.ErrNotInState) {
			t.Errorf("gone: %v", err)
		}
		return s.Swap(t.Context(), tx, "a", "paid", "refunded") // the transaction is usable
	})
	if err != nil {
		t.Error(err)
	}
	if err := (jobs.States{Table: pgx.Identifier{"nothing"}}).Swap(t.Context(), b.pool, 1, "a", "b"); err == nil || errors.Is(err, jobs.ErrGone) {
		t.Errorf("no table: %v", err)
	}
}

func TestOneRivalSwaps(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec("CREATE TABLE work (id int PRIMARY KEY, state text)")
	b.exec("INSERT INTO work VALUES (1, 'ready')")
	var group sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 40 {
		group.Go(func() {
			err := jobs.States{Table: pgx.Identifier{"work"}}.Swap(t.Context(), b.pool, 1, "ready", "running")
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, jobs.ErrNotInState) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if won != 1 {
		t.Errorf("%d swapped", won)
	}
}
