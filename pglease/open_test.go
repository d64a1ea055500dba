package pglease_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pglease/pglease/pglease"
)

// A request with a name may be made again, by this process or by the next. So what one call leaves
// behind must not turn against the next one.

// TestANamedWaitThatEndsAsItIsServedGetsItsLease: a release of it, sent on the way out, could arrive when
// the request has been made again, and end the lease that it was given then.
func TestANamedWaitThatEndsAsItIsServedGetsItsLease_U5(t *testing.T) {
	t.Parallel()
	events := newJournal()
	waiter, faults, pool := faulty(t, pglease.Config{Observer: events})
	held := acquire(t, newClient(t, pool, pglease.Config{}), "r")
	id := pglease.WithRequestID(pglease.NewRequestID())
	var once sync.Once
	var releases atomic.Int64
	faults.BeforeStatement(func(sql string) {
		if statement("Leave")(sql) {
			once.Do(func() { release(t, held) })
		}
		if statement("Release")(sql) || statement("ReleaseUnawaited")(sql) {
			releases.Add(1)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	waiting := waitFor(ctx, waiter, "r", id)
	events.await(t, pglease.EventWaiting, 1)
	cancel()
	first := <-waiting
	if first.err != nil {
		t.Fatalf("Acquire: %v", first.err)
	}
	wantState(t, first.lease, pglease.Held)
	if again := acquire(t, waiter, "r", id); again != first.lease {
		t.Error("the same request has two handles")
	}
	if releases.Load() > 0 {
		t.Error("it was released on the way out")
	}
	release(t, first.lease)
}

// TestAnUnknownOutcomeIsNotHeld: the reply to a join was lost. When the wait is cut short, another has the
// resource, and the request may have a place: what is not known is not called held.
func TestAnUnknownOutcomeIsNotHeld(t *testing.T) {
	t.Parallel()
	events := newJournal()
	waiter, faults, pool := faulty(t, pglease.Config{Observer: events})
	acquire(t, newClient(t, pool, pglease.Config{}), "r")
	lost := faults.LoseNextReply(joins)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := waitFor(ctx, waiter, "r", pglease.WithRequestID(pglease.NewRequestID()))
	<-lost.Done()
	events.await(t, pglease.EventWaiting, 1)
	cancel()
	err := (<-waiting).err
	var held *pglease.HeldError
	if !errors.Is(err, pglease.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) || errors.Is(err, pglease.ErrHeld) || errors.As(err, &held) {
		t.Errorf("Acquire: %v", err)
	}
}

// TestAnOpenTryIsNotForgotten: the reply to a join was lost, and the next one found no row. When the
// wait ends, nobody can say that nothing is left of the request.
func TestAnOpenTryIsNotForgotten(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{true, false} {
		waiter, faults, pool := faulty(t, pglease.Config{})
		acquire(t, newClient(t, pool, pglease.Config{}), "r")
		ctx, cancel := context.WithCancel(t.Context())
		var joined atomic.Int64
		faults.BeforeStatement(func(sql string) {
			switch {
			case joins(sql) && joined.Add(1) == 2:
				for _, sql := range []string{
					"DELETE FROM pglease.lease_waiter",
					"UPDATE pglease.resource_lease SET ended_at = clock_timestamp()",
					"DELETE FROM pglease.resource_lease",
				} {
					if _, err := pool.Exec(t.Context(), sql); err != nil {
						t.Error(err)
					}
				}
			case statement("Acquire")(sql) && joined.Load() == 2:
				cancel()
			}
		})
		faults.LoseNextReply(joins)
		var options []pglease.AcquireOption
		if named {
			options = append(options, pglease.WithRequestID(pglease.NewRequestID()))
		}
		lease, err := waiter.Acquire(ctx, "r", options...)
		if lease != nil || errors.Is(err, pglease.ErrUnknownOutcome) != named {
			t.Errorf("named %v: %v, %v", named, lease, err)
		}
		var left int
		err = pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pglease.lease_waiter)
			+ (SELECT count(*) FROM pglease.resource_lease WHERE ended_at IS NULL)`).Scan(&left)
		if err != nil || (left > 0 && !named) {
			t.Errorf("%d places or leases are left, %v", left, err)
		}
	}
}
