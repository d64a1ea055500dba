package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/fence"
)

// apply runs an op in a transaction of its own and returns the version, or the error.
func apply(tb testing.TB, pool *pgxpool.Pool, w *fence.Watermarks, by fence.Token, op fence.Op) (fence.Outcome, error) {
	tb.Helper()
	return w.Apply(tb.Context(), pool, by, op)
}

func mustApply(tb testing.TB, pool *pgxpool.Pool, w *fence.Watermarks, by fence.Token, op fence.Op) fence.Outcome {
	tb.Helper()
	out, err := apply(tb, pool, w, by, op)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func result(text string) func(context.Context, pgx.Tx) ([]byte, error) {
	return func(context.Context, pgx.Tx) ([]byte, error) { return []byte(text), nil }
}

func never(tb testing.TB) func(context.Context, pgx.Tx) ([]byte, error) {
	tb.Helper()
	return func(context.Context, pgx.Tx) ([]byte, error) {
		tb.Error("applied")
		return nil, nil
	}
}

func TestTheTwoLevels(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	if _, err := w.Watermark(t.Context(), pool, pump); !errors.Is(err, fence.ErrNotFound) {
		t.Errorf("untouched: %v", err)
	}
	// First touch establishes; equal is counted; the sequence rises.
	if out := mustApply(t, pool, w, token(t, 41), fence.Op{Sequence: 1}); out.Version != 1 || !out.Established || out.Repeated {
		t.Errorf("got %+v", out)
	}
	if out := mustApply(t, pool, w, token(t, 41), fence.Op{Sequence: 5, Apply: result("five")}); out.Version != 2 || out.Established {
		t.Errorf("got %+v", out)
	}
	stands(t, pool, w, 41, 2, 5)
	// The same sequence again is a repetition, one before it is out of order.
	if out := mustApply(t, pool, w, token(t, 41), fence.Op{Sequence: 5, Apply: never(t)}); out.Version != 2 || !out.Repeated || string(out.Result) != "five" {
		t.Errorf("got %+v", out)
	}
	var order *fence.OrderError
	if _, err := apply(t, pool, w, token(t, 41), fence.Op{Sequence: 4, Apply: never(t)}); !errors.Is(err, fence.ErrOutOfOrder) || !errors.As(err, &order) || order.Last != 5 || fence.IsStale(err) {
		t.Errorf("got %v", err)
	}
	// A higher token establishes, and its own sequence begins anew.
	if out := mustApply(t, pool, w, token(t, 42), fence.Op{Sequence: 1}); out.Version != 3 || !out.Established {
		t.Errorf("got %+v", out)
	}
	stands(t, pool, w, 42, 3, 1)
	// Lower is stale, whatever it is about; also what was accepted before.
	for _, op := range []fence.Op{{}, {Sequence: 5}, {Sequence: 6, Apply: never(t)}, {Key: "k", Apply: never(t)}, {ExpectedVersion: new(int64(3))}} {
		if _, err := apply(t, pool, w, token(t, 41), op); !errors.Is(err, fence.ErrStaleOwner) || !fence.IsStale(err) {
			t.Errorf("%+v: got %v", op, err)
		}
	}
	if _, err := apply(t, pool, w, tokenOf(t, pump, 42, 7), fence.Op{}); !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("twin: got %v", err)
	}
	stands(t, pool, w, 42, 3, 1)
}

func TestExpectedVersion(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	mustApply(t, pool, w, token(t, 41), fence.Op{ExpectedVersion: new(int64(0))})
	mustApply(t, pool, w, token(t, 41), fence.Op{})
	var conflict *fence.ConflictError
	for _, wrong := range []int64{0, 1, 3} {
		_, err := apply(t, pool, w, token(t, 41), fence.Op{ExpectedVersion: &wrong, Apply: never(t)})
		if !errors.Is(err, fence.ErrConflict) || !errors.As(err, &conflict) || conflict.Actual != 2 || conflict.Expected != wrong {
			t.Errorf("expected %d: got %v", wrong, err)
		}
	}
	mustApply(t, pool, w, token(t, 41), fence.Op{ExpectedVersion: new(int64(2))})
	stands(t, pool, w, 41, 3, 0)

	// A newer owner whose command is refused has shut its predecessors out all the same.
	if _, err := apply(t, pool, w, token(t, 42), fence.Op{ExpectedVersion: new(int64(9))}); !errors.Is(err, fence.ErrConflict) {
		t.Errorf("got %v", err)
	}
	stands(t, pool, w, 42, 3, 0)
	rejected(t, pool, w, pump, 0)
}

// A key names a command whoever sends it: the next owner, which does the same work again, gets what
// the one before it had done.
func TestAKeyIsAppliedOnce(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	first := mustApply(t, pool, w, token(t, 41), fence.Op{Key: "invoice-17", Apply: result("sent")})
	mustApply(t, pool, w, token(t, 41), fence.Op{})
	for _, number := range []int{41, 42} {
		out := mustApply(t, pool, w, token(t, number), fence.Op{Key: "invoice-17", Sequence: 9, ExpectedVersion: new(int64(77)), Apply: never(t)})
		if !out.Repeated || out.Version != first.Version || string(out.Result) != "sent" || out.Established != (number == 42) {
			t.Errorf("fence %d: got %+v", number, out)
		}
	}
	stands(t, pool, w, 42, 2, 0) // established by the repetition
	if out := mustApply(t, pool, w, tokenOf(t, "another", 1, 1), fence.Op{Key: "invoice-17"}); out.Repeated {
		t.Error("a key of another resource counts")
	}
	// A sequence that another command has is not a repetition of that.
	mustApply(t, pool, w, token(t, 42), fence.Op{Key: "a", Sequence: 3})
	for _, op := range []fence.Op{{Key: "b", Sequence: 3}, {Sequence: 3}} {
		if _, err := apply(t, pool, w, token(t, 42), op); !errors.Is(err, fence.ErrOutOfOrder) {
			t.Errorf("%+v: got %v", op, err)
		}
	}
	commands, err := w.Commands(t.Context(), pool, pump)
	if err != nil || len(commands) != 2 || commands[0].Key != "a" || commands[0].Sequence != 3 || commands[1].Fence != 41 || commands[1].Owner != "tester" {
		t.Errorf("commands %+v, %v", commands, err)
	}
}

// The change and the watermark are of one transaction: both or neither.
func TestAFailingApplyLeavesNothing(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	mustExec(t, pool, `CREATE TABLE done (x int)`)
	mustApply(t, pool, w, token(t, 41), fence.Op{})
	for _, failure := range []error{errors.New("no"), fence.ErrConflict, &fence.StaleError{}} { // also one that looks like a refusal
		_, err := apply(t, pool, w, token(t, 42), fence.Op{Key: "k", Apply: func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			_, err := tx.Exec(ctx, `INSERT INTO done VALUES (1)`)
			return nil, errors.Join(err, failure)
		}})
		if !errors.Is(err, failure) && !fence.IsStale(err) {
			t.Errorf("got %v, want %v", err, failure)
		}
	}
	stands(t, pool, w, 41, 1, 0)
	if n := count(t, pool, `SELECT count(*) FROM done`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// Without its transaction a command would be on record though its change is not there.
func TestAnApplyThatEndsTheTransaction(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"ROLLBACK": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, `ROLLBACK`); return err },
		"COMMIT":   func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, `COMMIT`); return err },
		"Commit":   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"Rollback": func(ctx context.Context, tx pgx.Tx) error { _ = tx.Rollback(ctx); return nil },
	} {
		pool, w := setUp(t)
		mustApply(t, pool, w, token(t, 41), fence.Op{})
		_, err := apply(t, pool, w, token(t, 42), fence.Op{Key: "k", Apply: func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			return nil, end(ctx, tx)
		}})
		if err == nil || !strings.Contains(err.Error(), "tried to end it") {
			t.Errorf("%s: got %v", name, err)
		}
		if commands, err := w.Commands(t.Context(), pool, pump); err != nil || len(commands) != 0 {
			t.Errorf("%s: commands %+v, %v", name, commands, err)
		}
		if out := mustApply(t, pool, w, token(t, 42), fence.Op{Key: "k"}); out.Repeated || out.Version != 2 {
			t.Errorf("%s, repeated: %+v", name, out)
		}
	}
}

// In the caller's transaction a refusal is an answer, not a failure.
func TestRefusalLeavesTheTransactionUsable(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool, w := setUp(t)
			mustApply(t, pool, w, token(t, 42), fence.Op{Sequence: 2})
			err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				if _, err := w.Advance(t.Context(), tx, token(t, 41), fence.Op{}); !errors.Is(err, fence.ErrStaleOwner) {
					t.Errorf("stale: %v", err)
				}
				if _, err := w.Advance(t.Context(), tx, token(t, 42), fence.Op{Sequence: 1}); !errors.Is(err, fence.ErrOutOfOrder) {
					t.Errorf("out of order: %v", err)
				}
				if err := w.Establish(t.Context(), tx, token(t, 41)); !errors.Is(err, fence.ErrStaleOwner) {
					t.Errorf("establish: %v", err)
				}
				for _, repeated := range []bool{false, true} {
					if out, err := w.Advance(t.Context(), tx, token(t, 43), fence.Op{Key: "k", Sequence: 1}); err != nil || out.Repeated != repeated {
						t.Errorf("got %+v, %v", out, err)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			stands(t, pool, w, 43, 2, 1)
			rejected(t, pool, w, pump, 2)
		})
	}
}

func TestInvalidOps(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	for name, op := range map[string]fence.Op{
		"long key":         {Key: strings.Repeat("x", fence.MaxKeyLength+1)},
		"NUL in the key":   {Key: "\x00"},
		"sequence":         {Sequence: -1},
		"version":          {ExpectedVersion: new(int64(-1))},
		"owner":            {Owner: strings.Repeat("x", fence.MaxOwnerLength+1)},
		"owner not UTF-8":  {Owner: "\xff"},
		"result too large": {Key: "k", Apply: result(strings.Repeat("x", fence.MaxResultSize+1))},
		"uses itself": {Key: "k", Apply: func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			_, err := w.Advance(ctx, tx, token(t, 41), fence.Op{})
			return nil, err
		}},
	} {
		if _, err := apply(t, pool, w, token(t, 41), op); !errors.Is(err, fence.ErrInvalidOp) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := apply(t, pool, w, fence.Token{}, fence.Op{}); !errors.Is(err, fence.ErrInvalidToken) {
		t.Errorf("got %v", err)
	}
	if err := w.Establish(t.Context(), pool, fence.Token{}); !errors.Is(err, fence.ErrInvalidToken) {
		t.Errorf("got %v", err)
	}
	if n := count(t, pool, `SELECT count(*) FROM pglease.fence_watermark`); n != 0 {
		t.Errorf("%d watermarks", n)
	}
	for _, cfg := range []fence.Config{
		{Schema: "pg_x"}, {Owner: "\x00"}, {IdleTimeout: -1}, {IdleTimeout: fence.MaxIdleTimeout + 1},
	} {
		if _, err := fence.NewWatermarks(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// The functions without a Config use the schema "pglease".
func TestPackageFunctions(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	if err := fence.Establish(t.Context(), pool, token(t, 41)); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := fence.Advance(t.Context(), tx, token(t, 41), fence.Op{Sequence: 1, Owner: "me"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	stands(t, pool, w, 41, 1, 1)
	if got := fmt.Sprint(fence.Establish(t.Context(), pool, token(t, 40))); got != `fence: establish "device/pump-7": stale owner: fence 40 is older than 41 of lease 0197a3c2-6c1e-7d6f-8f5b-000000000029` {
		t.Errorf("got %s", got)
	}
}
