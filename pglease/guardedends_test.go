package pglease_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// What was kept of a transaction besides itself is closed with it.
func TestGuardedTxClosesWhatIsOfIt(t *testing.T) {
	t.Parallel()
	pool, a, _ := guardSetUp(t)
	var savepoint pgx.Tx
	var object *pgx.LargeObject
	var id uint32
	err := pglease.GuardedTx(t.Context(), pool, acquire(t, a, "r"), func(tx pgx.Tx) (err error) {
		if savepoint, err = tx.Begin(t.Context()); err != nil {
			return err
		}
		objects := tx.LargeObjects()
		if id, err = objects.Create(t.Context(), 0); err != nil {
			return err
		}
		if object, err = objects.Open(t.Context(), id, pgx.LargeObjectModeWrite); err != nil {
			return err
		}
		_, err = object.Write([]byte("kept"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var content string
	if err := pool.QueryRow(t.Context(), `SELECT convert_from(lo_get($1), 'UTF8')`, id).Scan(&content); err != nil || content != "kept" {
		t.Errorf("%q, %v", content, err)
	}
	_, written := object.Write([]byte("late"))
	_, prepared := savepoint.Prepare(t.Context(), "late", `SELECT 1`)
	for what, err := range map[string]error{
		"large object": written, "Prepare": prepared,
		"savepoint's Commit": savepoint.Commit(t.Context()), "savepoint's Rollback": savepoint.Rollback(t.Context()),
	} {
		if !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// trips notes what is sent at a time: one statement, or the statements of a batch.
type trips struct {
	mu   sync.Mutex
	sent []string
}

func (r *trips) note(sql ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, text := range sql {
		if name, ok := strings.CutPrefix(text, "-- name: "); ok {
			text = name
		}
		sql[i] = strings.Fields(text)[0]
	}
	r.sent = append(r.sent, strings.Join(sql, "+"))
}

func (r *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.note(data.SQL)
	return ctx
}

func (*trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	var sql []string
	for _, q := range data.Batch.QueuedQueries {
		sql = append(sql, q.SQL)
	}
	r.note(sql...)
	return ctx
}

func (*trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (*trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// A guarded transaction has no round trip that the same one without a guard has not.
func TestGuardedTxAddsNoRoundTrip(t *testing.T) {
	t.Parallel()
	for level, want := range map[pgx.TxIsoLevel]string{
		pgx.ReadCommitted:  "begin+Guard INSERT GuardLast+commit",
		pgx.RepeatableRead: "begin+Guard INSERT commit", // its last look is at the time alone
	} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			sent := &trips{}
			pool := traced(t, sent)
			run(t, pool, `CREATE TABLE written (n bigint GENERATED ALWAYS AS IDENTITY, by text)`)
			lease := acquire(t, newClient(t, pool, pglease.Config{}), "r")
			sent.sent = nil
			options := pglease.GuardTxOptions(pgx.TxOptions{IsoLevel: level})
			if err := pglease.GuardedTx(t.Context(), pool, lease, write(t, "a"), options); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(sent.sent, " "); got != want {
				t.Errorf("sent %s", got)
			}
		})
	}
}

// A commit that the guard kept from being made leaves a connection that is as good as new.
func TestGuardedTxLeavesAUsableConnectionAfterALoss(t *testing.T) {
	t.Parallel()
	others, a, _ := guardSetUp(t)
	lease := acquire(t, a, "r")
	pool := pools.Open(t, others.Config().ConnString(), pools.Conns(1))
	err := pglease.GuardedTx(t.Context(), pool, lease, func(tx pgx.Tx) error {
		pgleasetest.ExpireLease(t, others, "r")
		return write(t, "a")(tx)
	})
	if !errors.Is(err, pglease.ErrExpired) || code(err) != "" {
		t.Errorf("got %v", err)
	}
	if by := writtenBy(t, pool); len(by) != 0 || pool.Stat().NewConnsCount() != 1 {
		t.Errorf("written by %v, %d connections were needed", by, pool.Stat().NewConnsCount())
	}
	// The same failure of another statement is not taken for the guard's.
	run(t, others, `CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM 'x'::text::boolean; RETURN NULL; END $$`)
	run(t, others, `CREATE CONSTRAINT TRIGGER late AFTER INSERT ON written DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fails()`)
	err = pglease.GuardedTx(t.Context(), pool, acquire(t, a, "other"), write(t, "a"))
	if code(err) != "22P02" || errors.Is(err, pglease.ErrLost) || errors.Is(err, pglease.ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
}
