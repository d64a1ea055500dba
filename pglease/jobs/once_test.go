package jobs_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/jobs"
)

type charge struct{ Number int }

// once charges in a transaction of its own.
func once(b bench, key string, fn func(context.Context, pgx.Tx) (charge, error)) (result charge, repeated bool, err error) {
	b.tb.Helper()
	err = pgx.BeginFunc(b.tb.Context(), b.pool, func(tx pgx.Tx) (err error) {
		result, repeated, err = jobs.Once(b.tb.Context(), tx, key, fn)
		return err
	})
	return result, repeated, err
}

func chargeNumber(n int) func(context.Context, pgx.Tx) (charge, error) {
	return func(ctx context.Context, tx pgx.Tx) (charge, error) {
		_, err := tx.Exec(ctx, "INSERT INTO charges VALUES ($1)", n)
		return charge{n}, err
	}
}

func TestSecondCallerGetsTheFirstsResult(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec("CREATE TABLE charges (n int)")
	if got, repeated, err := once(b, "order/1", chargeNumber(1)); err != nil || repeated || got.Number != 1 {
		t.Fatal(got, repeated, err)
	}
	if got, repeated, err := once(b, "order/1", chargeNumber(2)); err != nil || !repeated || got.Number != 1 {
		t.Fatal(got, repeated, err)
	}
	if got, repeated, err := once(b, "order/2", chargeNumber(3)); err != nil || repeated || got.Number != 3 {
		t.Fatal(got, repeated, err)
	}
	if n := value[int](b, "SELECT count(*) FROM charges"); n != 2 {
		t.Errorf("%d charges", n)
	}
	if n, err := b.PruneOnce(t.Context(), time.Hour); err != nil || n != 0 {
		t.Errorf("pruned %d, %v", n, err)
	}
	if n, err := b.PruneOnce(t.Context(), 0); err != nil || n != 2 {
		t.Errorf("pruned %d, %v", n, err)
	}
}

// What fails, or is cut off before the commit, leaves no trace; the next caller does it.
func TestOnceIsAllOrNothing(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec("CREATE TABLE charges (n int)")
	kaput := errors.New("kaput")
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		_, _, err := jobs.Once(t.Context(), tx, "order/1", func(ctx context.Context, tx pgx.Tx) (charge, error) {
			_, err := chargeNumber(1)(ctx, tx)
			return charge{}, errors.Join(err, kaput)
		})
		if !errors.Is(err, kaput) {
			t.Errorf("got %v", err)
		}
		// The transaction goes on, and the key is as new.
		got, repeated, err := jobs.Once(t.Context(), tx, "order/1", chargeNumber(2))
		if err != nil || repeated || got.Number != 2 {
			t.Error(got, repeated, err)
		}
		_, err = tx.Exec(t.Context(), "SELECT pg_terminate_backend(pg_backend_pid())")
		return err
	})
	if err == nil {
		t.Fatal("the session lives")
	}
	if n := value[int](b, "SELECT count(*) FROM charges"); n != 0 {
		t.Errorf("%d charges", n)
	}
	if got, repeated, err := once(b, "order/1", chargeNumber(3)); err != nil || repeated || got.Number != 3 {
		t.Error(got, repeated, err)
	}
	// A statement that fails in fn is undone with the savepoint.
	err = pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		_, _, err := jobs.Once(t.Context(), tx, "order/4", func(ctx context.Context, tx pgx.Tx) (charge, error) {
			_, err := tx.Exec(ctx, "SELECT 1 / 0")
			return charge{}, err
		})
		if err == nil {
			t.Error("no error")
		}
		_, err = tx.Exec(t.Context(), "INSERT INTO charges VALUES (4)")
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if n := value[int](b, "SELECT count(*) FROM pglease.job_once"); n != 1 {
		t.Errorf("%d keys", n)
	}
}

// What fn did is undone however it ends: by an error after its context, a panic, or the end of its
// goroutine. The caller's transaction goes on, and commits nothing of it.
func TestOnceUndoesWhatDoesNotReturn(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec("CREATE TABLE charges (n int)")
	for name, end := range map[string]func(cancel context.CancelFunc){
		"a context that ends": func(cancel context.CancelFunc) { cancel() },
		"a panic":             func(context.CancelFunc) { panic("kaput") },
		"Goexit":              func(context.CancelFunc) { runtime.Goexit() },
	} {
		err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() { _ = recover() }()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				_, _, err := jobs.Once(ctx, tx, name, func(ctx context.Context, tx pgx.Tx) (charge, error) {
					_, err := chargeNumber(1)(ctx, tx)
					end(cancel)
					return charge{}, errors.Join(err, ctx.Err())
				})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", name, err)
				}
			}()
			<-ended
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := value[int](b, "SELECT count(*) FROM charges"); n != 0 {
			t.Errorf("%s: %d charges", name, n)
		}
		if got, repeated, err := once(b, name, func(context.Context, pgx.Tx) (charge, error) { return charge{Number: 2}, nil }); err != nil || repeated || got.Number != 2 {
			t.Errorf("%s: then %v, %v, %v", name, got, repeated, err)
		}
	}
}

func TestRivalsForAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec("CREATE TABLE charges (n int)")
	var group sync.WaitGroup
	var mu sync.Mutex
	results, firsts := map[int]int{}, 0
	for i := range 30 {
		group.Go(func() {
			got, repeated, err := once(b, "order/1", chargeNumber(i))
			mu.Lock()
			defer mu.Unlock()
			results[got.Number]++
			if err != nil {
				t.Error(err)
			}
			if !repeated {
				firsts++
			}
		})
	}
	group.Wait()
	if firsts != 1 || len(results) != 1 || value[int](b, "SELECT count(*) FROM charges") != 1 {
		t.Errorf("%d did it, results %v", firsts, results)
	}
}

// What cannot be kept is refused before any SQL, and the transaction goes on.
func TestOnceRefusesResultsThatCannotBeKept(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for name, result := range map[string]string{"NUL": "a\x00", "too large": strings.Repeat("x", jobs.MaxPayloadSize)} {
		err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			give := func(context.Context, pgx.Tx) (string, error) { return result, nil }
			if _, _, err := jobs.Once(t.Context(), tx, "k", give); !errors.Is(err, jobs.ErrInvalidJob) {
				t.Errorf("%s: %v", name, err)
			}
			_, err := tx.Exec(t.Context(), "SELECT 1")
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := value[int](b, "SELECT count(*) FROM pglease.job_once"); n != 0 {
		t.Errorf("%d keys", n)
	}
}
