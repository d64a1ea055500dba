package pglease_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// traced returns a pool whose connections have a tracer.
func traced(t *testing.T, tracer pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	return pools.Open(t, pgleasetest.URL(t), func(c *pgxpool.Config) { c.ConnConfig.Tracer = tracer })
}

// lateRelease keeps the reply of the next release that serves a line from the client.
type lateRelease struct {
	came chan struct{} // closed when the server has answered
	let  chan struct{} // closed when the client may have it
	once atomic.Bool
}

type releasing struct{}

func (l *lateRelease) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, releasing{}, strings.Contains(q.SQL, "lease_release("))
}

func (l *lateRelease) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if late, _ := ctx.Value(releasing{}).(bool); late && l.once.CompareAndSwap(false, true) {
		close(l.came)
		<-l.let
	}
}

// A waiter of the client that releases may find out by itself that it was served, and return, before the reply of
// the release is there. The lease is its holder's then, and not one that nobody waits for.
func TestAGrantThatWasSeenBeforeItsReleaseReturnedIsKept(t *testing.T) {
	t.Parallel()
	late := &lateRelease{came: make(chan struct{}), let: make(chan struct{})}
	pool := traced(t, late)
	client := newClient(t, pool, pglease.Config{})
	held := acquire(t, client, "r")
	waiting := waitFor(t.Context(), client, "r")
	inLine(t, pool, "r", 1)
	released := make(chan struct{})
	go func() {
		defer close(released)
		release(t, held)
	}()
	<-late.came
	var session int // that is heard no more, so that the client looks after its waiters
	if err := pool.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(l.pid)) FROM pg_locks AS l JOIN pglease.lease_client AS c
		ON l.locktype = 'advisory' AND (l.classid::bigint << 32 | l.objid::bigint) = c.session_key AND l.granted`).Scan(&session); err != nil || session != 1 {
		t.Fatalf("%d sessions listened, %v", session, err)
	}
	next := <-waiting
	close(late.let)
	<-released
	if next.err != nil {
		t.Fatal(next.err)
	}
	var ended bool
	if err := pool.QueryRow(t.Context(), "SELECT ended_at IS NOT NULL FROM pglease.resource_lease").Scan(&ended); err != nil || ended {
		t.Errorf("the waiter's lease was ended under it: %v, %v", ended, err)
	}
	if err := next.lease.Release(t.Context()); err != nil {
		t.Errorf("its own release: %v", err)
	}
}

// secondRenewal lets the first renewal of a client pass and keeps the second back.
type secondRenewal struct {
	count atomic.Int32
	let   chan struct{} // closed when the second may go
}

func (r *secondRenewal) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if statement("Renew")(q.SQL) && r.count.Add(1) == 2 {
		<-r.let
	}
	return ctx
}

func (r *secondRenewal) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Of two calls with one request that are served together, the one may have released the lease before the other looks at
// what it was told.
func TestACallThatSharesItsRequestIsNotGivenALeaseThatIsOver(t *testing.T) {
	t.Parallel()
	kept := &secondRenewal{let: make(chan struct{})}
	pool := traced(t, kept)
	events := newJournal()
	client := newClient(t, pool, pglease.Config{TTL: time.Hour, Observer: events})
	held := acquire(t, newClient(t, pool, pglease.Config{TTL: time.Hour}), "r")
	id := pglease.WithRequestID(pglease.NewRequestID())
	calls := make(chan served, 2)
	for range 2 {
		go func() {
			lease, err := client.Acquire(t.Context(), "r", id)
			calls <- served{lease, err}
		}()
	}
	events.await(t, pglease.EventWaiting, 2)
	release(t, held)
	first := <-calls
	if first.err != nil {
		t.Fatal(first.err)
	}
	release(t, first.lease)
	close(kept.let)
	if second := <-calls; !errors.Is(second.err, pglease.ErrRequestSpent) {
		t.Errorf("the second call: %v, %v", second.lease, second.err)
	}
}
