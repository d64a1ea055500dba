package fence_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/fence"
)

func waitForLock(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	for waiting := false; !waiting; {
		const query = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`
		if err := pool.QueryRow(tb.Context(), query).Scan(&waiting); err != nil {
			tb.Fatal(err)
		}
	}
}

// overlap has first advance in an open transaction, second meanwhile and wait for it, and then first
// commit or roll back. It returns what second was told.
func overlap(t *testing.T, first, second fence.Token, key string, established, commit bool) (*pgxpool.Pool, *fence.Watermarks, fence.Outcome, error) {
	t.Helper()
	pool, w := setUp(t)
	if established {
		mustApply(t, pool, w, token(t, 1), fence.Op{})
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) // after a commit it has nothing to do
	if _, err := w.Advance(t.Context(), tx, first, fence.Op{Key: key, Apply: result("first")}); err != nil {
		t.Fatal(err)
	}
	type told struct {
		out fence.Outcome
		err error
	}
	answer := make(chan told, 1)
	go func() {
		out, err := w.Apply(t.Context(), pool, second, fence.Op{Key: key, Apply: result("second")})
		answer <- told{out, err}
	}()
	waitForLock(t, pool)
	if commit {
		err = tx.Commit(t.Context())
	} else {
		err = tx.Rollback(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	got := <-answer
	return pool, w, got.out, got.err
}

// A command that waited for a rival is judged by what the rival left, also where both create the
// watermark; and it sees what the rival has recorded.
func TestWaitingForARival(t *testing.T) {
	t.Parallel()
	for _, established := range []bool{true, false} {
		t.Run(fmt.Sprintf("established before: %v", established), func(t *testing.T) {
			t.Parallel()
			t.Run("older waits for newer", func(t *testing.T) {
				t.Parallel()
				pool, w, _, err := overlap(t, token(t, 42), token(t, 41), "", established, true)
				if !errors.Is(err, fence.ErrStaleOwner) {
					t.Errorf("got %v", err)
				}
				rejected(t, pool, w, pump, 1)
			})
			t.Run("newer waits for older", func(t *testing.T) {
				t.Parallel()
				if _, _, out, err := overlap(t, token(t, 41), token(t, 42), "", established, true); err != nil || !out.Established {
					t.Errorf("got %+v, %v", out, err)
				}
			})
			t.Run("twin waits for twin", func(t *testing.T) {
				t.Parallel()
				if _, _, _, err := overlap(t, token(t, 42), tokenOf(t, pump, 42, 7), "", established, true); !errors.Is(err, fence.ErrStaleOwner) {
					t.Errorf("got %v", err)
				}
			})
			t.Run("newer rolls back", func(t *testing.T) {
				t.Parallel()
				if _, _, out, err := overlap(t, token(t, 42), token(t, 41), "", established, false); err != nil || out.Repeated {
					t.Errorf("got %+v, %v", out, err)
				}
			})
			t.Run("the same command waits for itself", func(t *testing.T) {
				t.Parallel()
				_, _, out, err := overlap(t, token(t, 42), token(t, 42), "k", established, true)
				if err != nil || !out.Repeated || string(out.Result) != "first" {
					t.Errorf("got %+v, %v", out, err)
				}
			})
		})
	}
}

// In the caller's transaction a serialization failure is the caller's: only it can run the whole again.
func TestSerializationFailureGoesToTheCaller(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	mustApply(t, pool, w, token(t, 41), fence.Op{})
	for _, resource := range []string{pump, "device/new"} {
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `SELECT FROM pglease.fence_watermark`); err != nil { // takes the snapshot
			t.Fatal(err)
		}
		mustApply(t, pool, w, tokenOf(t, resource, 42, 42), fence.Op{})
		_, err = w.Advance(t.Context(), tx, tokenOf(t, resource, 43, 43), fence.Op{})
		if code(err) != "40001" || fence.IsStale(err) {
			t.Errorf("%s: got %v", resource, err)
		}
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// On a pool there is nobody else to run it again, whatever the session's default is.
func TestIsolationDoesNotMatterInACrowd(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			pool := withSettings(t, map[string]string{"default_transaction_isolation": level})
			w := newWatermarks(t)
			mustExec(t, pool, `CREATE TABLE device (device_id text PRIMARY KEY, fence bigint, lease uuid)`)
			mustExec(t, pool, `INSERT INTO device VALUES ($1)`, pump)
			column := fence.Column{Table: pgx.Identifier{"public", "device"}, Key: "device_id", Fence: "fence", Lease: "lease"}
			var crowd sync.WaitGroup
			for range 4 {
				crowd.Go(func() {
					for n := 1; n <= 20; n++ {
						for what, err := range map[string]error{
							"watermark": w.Establish(t.Context(), pool, token(t, n)),
							"column":    column.Establish(t.Context(), pool, token(t, n), nil),
						} {
							if err != nil && !fence.IsStale(err) {
								t.Errorf("%s: %v", what, err)
							}
						}
					}
				})
			}
			crowd.Wait()
		})
	}
}

// Who passes a transaction as something less still learns what to do.
func TestAHiddenTransactionLearnsItsFailure(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	mustApply(t, pool, w, token(t, 41), fence.Op{})
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(t.Context(), `SELECT FROM pglease.fence_watermark`); err != nil {
		t.Fatal(err)
	}
	mustApply(t, pool, w, token(t, 42), fence.Op{})
	if err := w.Establish(t.Context(), struct{ fence.DB }{tx}, token(t, 43)); code(err) != "40001" {
		t.Errorf("got %v", err)
	}
}

// Apply runs again what a deadlock undid.
func TestApplyRunsAgainAfterADeadlock(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	var holding sync.WaitGroup
	holding.Add(2)
	told := make(chan error, 2)
	cross := func(mine, other string, number int) {
		first := true
		_, err := w.Apply(t.Context(), pool, tokenOf(t, mine, number, number), fence.Op{
			Apply: func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
				if first {
					first = false
					holding.Done()
					holding.Wait() // each holds its own before it asks for the other's
				}
				_, err := w.Advance(ctx, tx, tokenOf(t, other, number, number), fence.Op{})
				return nil, err
			},
		})
		told <- err
	}
	go cross("a", "b", 1)
	go cross("b", "a", 1)
	for range 2 {
		if err := <-told; err != nil && !fence.IsStale(err) {
			t.Error(err)
		}
	}
}
