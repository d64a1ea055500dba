package pgleasetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/pgleasetest"
)

// rig has a table, a pool through faults, and one that sees what is really there.
type rig struct {
	faults *pgleasetest.Faults
	pool   *pgxpool.Pool
	direct *pgxpool.Pool
}

func newRig(t *testing.T, mode pgx.QueryExecMode) rig {
	t.Helper()
	url := pgleasetest.URL(t)
	direct := pgleasetest.NewFaults().Pool(t, url) // without a rule, faults change nothing
	if _, err := direct.Exec(t.Context(), "CREATE TABLE t (n int)"); err != nil {
		t.Fatal(err)
	}
	faults := pgleasetest.NewFaults()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode = mode
	config.MaxConns = 1
	faults.Configure(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	t.Cleanup(faults.Close)
	return rig{faults: faults, pool: pool, direct: direct}
}

func (r rig) insert(ctx context.Context, n int) error {
	_, err := r.pool.Exec(ctx, "INSERT INTO t VALUES ($1)", n)
	return err
}

func (r rig) rows(t *testing.T) []int {
	t.Helper()
	rows, err := r.direct.Query(t.Context(), "SELECT n FROM t ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (r rig) expect(t *testing.T, want ...int) {
	t.Helper()
	if got := r.rows(t); !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
}

func inserts(sql string) bool { return strings.Contains(sql, "INSERT INTO t") }

// modes are all the ways in which pgx sends a statement.
var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

func inAllModes(t *testing.T, test func(t *testing.T, r rig)) {
	t.Helper()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			test(t, newRig(t, mode))
		})
	}
}

func TestLoseNextReply(t *testing.T) {
	t.Parallel()
	inAllModes(t, func(t *testing.T, r rig) {
		if err := r.insert(t.Context(), 1); err != nil { // prepared from here on
			t.Fatal(err)
		}
		lost := r.faults.LoseNextReply(inserts)
		if _, err := r.pool.Exec(t.Context(), "SELECT 1"); err != nil {
			t.Errorf("a statement that does not match: %v", err)
		}
		if err := r.insert(t.Context(), 2); err == nil {
			t.Error("the reply arrived")
		}
		<-lost.Done()
		r.expect(t, 1, 2)
		if err := r.insert(t.Context(), 3); err != nil {
			t.Errorf("the next statement: %v", err)
		}
		r.expect(t, 1, 2, 3)
	})
}

func TestLoseReplyToCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgx.QueryExecModeCacheStatement)
	r.faults.LoseNextReply(func(sql string) bool { return sql == "commit" })
	err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO t VALUES (1)")
		return err
	})
	if err == nil {
		t.Error("the commit was confirmed")
	}
	r.expect(t, 1)
}

func TestLoseReplyOfBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgx.QueryExecModeExec)
	lost := r.faults.LoseNextReply(func(sql string) bool { return strings.Contains(sql, "VALUES (2)") })
	batch := new(pgx.Batch)
	batch.Queue("INSERT INTO t VALUES (1)")
	batch.Queue("INSERT INTO t VALUES (2)")
	if err := r.pool.SendBatch(t.Context(), batch).Close(); err == nil {
		t.Error("the batch was confirmed")
	}
	<-lost.Done()
	r.expect(t, 1, 2)
}

func TestFailNextSend(t *testing.T) {
	t.Parallel()
	inAllModes(t, func(t *testing.T, r rig) {
		lost := r.faults.FailNextSend(inserts)
		if err := r.insert(t.Context(), 1); err == nil {
			t.Error("a reply arrived")
		}
		<-lost.Done()
		r.expect(t)
		if err := r.insert(t.Context(), 2); err != nil {
			t.Errorf("the next statement: %v", err)
		}
		r.expect(t, 2)
	})
}

func TestBeforeStatement(t *testing.T) {
	t.Parallel()
	inAllModes(t, func(t *testing.T, r rig) {
		var mu sync.Mutex
		seen := 0
		r.faults.BeforeStatement(func(sql string) {
			mu.Lock()
			defer mu.Unlock()
			if inserts(sql) {
				seen++
			}
		})
		for n := range 3 {
			if err := r.insert(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if seen != 3 {
			t.Errorf("saw %d statements, want 3", seen)
		}
	})
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgx.QueryExecModeCacheStatement)
	if err := r.insert(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	r.faults.Freeze()
	done := make(chan error, 1)
	go func() { done <- r.insert(t.Context(), 2) }()
	r.expect(t, 1)
	select {
	case err := <-done:
		t.Errorf("a frozen statement ended: %v", err)
	default:
	}
	r.faults.Unfreeze()
	if err := <-done; err != nil {
		t.Errorf("after the thaw: %v", err)
	}
	r.expect(t, 1, 2)
}

func TestFreezeEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgx.QueryExecModeCacheStatement)
	if err := r.insert(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	r.faults.Freeze()
	for range 2 { // on the connection that there is, and on connecting
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := r.insert(ctx, 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		cancel()
	}
	r.faults.Unfreeze()
	if err := r.insert(t.Context(), 3); err != nil {
		t.Errorf("after the thaw: %v", err)
	}
	// 2 arrived late, and so did pgx's request to cancel it: either may have won.
	if got := r.rows(t); !slices.Contains(got, 1) || !slices.Contains(got, 3) {
		t.Errorf("rows %v", got)
	}
}

func TestWriteArrivesAfterItsClientHasGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgx.QueryExecModeCacheStatement)
	listener, err := r.direct.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Release()
	if _, err := listener.Exec(t.Context(), "LISTEN arrived"); err != nil {
		t.Fatal(err)
	}
	pooled, err := r.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn := pooled.Hijack().PgConn()
	r.faults.Freeze()
	conn.Frontend().SendQuery(&pgproto3.Query{String: "INSERT INTO t VALUES (1); NOTIFY arrived"})
	if err := errors.Join(conn.Frontend().Flush(), conn.Conn().Close()); err != nil {
		t.Fatal(err)
	}
	r.expect(t)
	r.faults.Unfreeze()
	if _, err := listener.Conn().WaitForNotification(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.expect(t, 1)
}

// TestFrozenSessionKeepsItsLocks: the server does not learn that a frozen client has gone.
func TestFrozenSessionKeepsItsLocks(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgx.QueryExecModeCacheStatement)
	conn, err := r.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE t"); err != nil {
		t.Fatal(err)
	}
	r.faults.Freeze()
	raw := conn.Hijack()
	closing, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_ = raw.Close(closing)
	if _, err := r.direct.Exec(t.Context(), "LOCK TABLE t NOWAIT"); err == nil {
		t.Error("the lock is free")
	}
	r.faults.Close()
	if _, err := r.direct.Exec(t.Context(), "BEGIN; LOCK TABLE t; COMMIT"); err != nil { // waits for the session's end
		t.Error(err)
	}
}
