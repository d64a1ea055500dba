package pglease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// A ghost is a place in line, or a lease, of a request that nobody waits for any more.

// TestNoGhostStaysWhenConnectionsDie: every connection of the waiting client is killed as the wait is
// cancelled; another wait of the same client keeps it alive.
func TestNoGhostStaysWhenConnectionsDie(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	mine, err := pgxpool.New(t.Context(), pool.Config().ConnString()+"&application_name=mine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mine.Close)
	holder, waiter := newClient(t, pool, pglease.Config{}), newClient(t, mine, pglease.Config{})
	held, kept := acquire(t, holder, "r"), acquire(t, holder, "kept")
	keeps := waitFor(t.Context(), waiter, "kept")
	inLine(t, pool, "kept", 1)
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		waiting := waitFor(ctx, waiter, "r")
		inLine(t, pool, "r", 1)
		if _, err := pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mine'"); err != nil {
			t.Fatal(err)
		}
		cancel()
		if w := <-waiting; w.lease != nil {
			t.Fatal("granted while held")
		}
		inLine(t, pool, "r", 0)
	}
	release(t, held)
	if r := readRow(t, pool, "r"); r.current {
		t.Errorf("granted to a ghost: %+v", r)
	}
	release(t, kept)
	release(t, (<-keeps).lease)
}

// TestARequestStandsInLineOnce: calls that share an id, in one client and in two, share its lease.
func TestARequestStandsInLineOnce(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder := newClient(t, pool, pglease.Config{})
	clients := []*pglease.Client{newClient(t, pool, pglease.Config{}), newClient(t, pool, pglease.Config{})}
	for round := range 10 {
		resource := fmt.Sprint("r", round)
		held := acquire(t, holder, resource)
		id := pglease.WithRequestID(pglease.NewRequestID())
		var waiting []<-chan served
		for i := range 4 {
			waiting = append(waiting, waitFor(t.Context(), clients[i%2], resource, id))
		}
		inLine(t, pool, resource, 1)
		release(t, held)
		var lease *pglease.Lease
		for _, w := range waiting {
			next := <-w
			if next.err != nil {
				t.Fatal(next.err)
			}
			if lease != nil && lease.Token() != next.lease.Token() {
				t.Errorf("tokens %v and %v", lease.Token(), next.lease.Token())
			}
			lease = next.lease
		}
		inLine(t, pool, resource, 0)
		release(t, lease)
		if r := readRow(t, pool, resource); r.current {
			t.Errorf("granted again: %+v", r)
		}
	}
}

// TestAnOpenReleaseIsNotTakenBack: its statement may be on its way, so the lease never is Held again.
func TestAnOpenReleaseIsNotTakenBack(t *testing.T) {
	t.Parallel()
	client, faults, pool := faulty(t, pglease.Config{})
	lease := acquire(t, client, "r")
	faults.LoseNextReply(statement("ReleaseUnawaited"))
	if err := lease.Release(t.Context()); err == nil {
		t.Fatal("a lost reply was not noticed")
	}
	if err := lease.HandOver(t.Context(), "nobody"); err != nil && !errors.Is(err, pglease.ErrNoSuccessor) {
		t.Errorf("HandOver: %v", err)
	}
	if s := lease.State(); s == pglease.Held {
		t.Errorf("the lease is %v again", s)
	}
	if r := readRow(t, pool, "r"); r.current {
		t.Error("the row is held")
	}
}

// TestALostReplyWhileBarging: the waiter begins anew, and leaves nothing behind.
func TestALostReplyWhileBarging(t *testing.T) {
	t.Parallel()
	waiter, faults, pool := faulty(t, pglease.Config{})
	holder, rival := newClient(t, pool, pglease.Config{}), newClient(t, pool, pglease.Config{})
	held := acquire(t, holder, "r")
	waiting := waitFor(t.Context(), waiter, "r", pglease.WithMode(pglease.Barging))
	inLine(t, pool, "r", 1)
	var once sync.Once
	rivals := make(chan *pglease.Lease, 1)
	faults.BeforeStatement(func(sql string) {
		if statement("Acquire")(sql) { // the try after the ring: a rival is first, and the answer is lost
			once.Do(func() {
				rivals <- acquire(t, rival, "r", pglease.WithMode(pglease.Barging))
				faults.LoseNextReply(statement("Acquire"))
			})
		}
	})
	release(t, held)
	release(t, <-rivals)
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	release(t, next.lease)
	inLine(t, pool, "r", 0)
	if r := readRow(t, pool, "r"); r.current {
		t.Errorf("granted to a ghost: %+v", r)
	}
}

// TestAWaitOutlivesAGrantThatItDidNotHearOf: the network was silent for longer than the lease that the
// waiter was handed lived.
func TestAWaitOutlivesAGrantThatItDidNotHearOf(t *testing.T) {
	t.Parallel()
	waiter, faults, pool := faulty(t, pglease.Config{TTL: 300 * time.Millisecond})
	holder := newClient(t, pool, pglease.Config{})
	held := acquire(t, holder, "r")
	waiting := waitFor(t.Context(), waiter, "r")
	inLine(t, pool, "r", 1)
	faults.Freeze()
	release(t, held)
	for r := readRow(t, pool, "r"); r.current; r = readRow(t, pool, "r") {
		continue
	}
	faults.Unfreeze()
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	if err := next.lease.Release(t.Context()); err != nil && !errors.Is(err, pglease.ErrLost) {
		t.Error(err)
	}
}

// TestTheDeadDoNotFillALine: they are dropped when a live one finds it full.
func TestTheDeadDoNotFillALine(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder := newClient(t, pool, pglease.Config{})
	held := acquire(t, holder, "r")
	if _, err := pool.Exec(t.Context(), `WITH dead AS (
		INSERT INTO pglease.lease_waiter (resource_id, request_id, client_id, owner_id, ttl, lock_delay, barging, joined_at)
		SELECT 'r', gen_random_uuid(), gen_random_uuid(), 'gone', '1 hour', '0', false, clock_timestamp() FROM generate_series(1, 3))
		UPDATE pglease.resource_lease SET waiting = waiting + 3`); err != nil {
		t.Fatal(err)
	}
	waiting := waitFor(t.Context(), newClient(t, pool, pglease.Config{MaxWaiters: 3}), "r")
	inLine(t, pool, "r", 1)
	release(t, held)
	release(t, (<-waiting).lease)
}

// TestAnEndedContextSendsNothing: no row is made for it.
func TestAnEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.TryAcquire(ended, "r"); !errors.Is(err, context.Canceled) {
			t.Errorf("TryAcquire: %v", err)
		}
		if len(f.calls) > 0 {
			t.Errorf("sent: %v", f.calls)
		}
	})
}

// stranger puts a waiter of another process in line for r, and returns the session by which it is seen to live.
func stranger(t *testing.T, pool *pgxpool.Pool, ttl time.Duration) *pgx.Conn {
	t.Helper()
	session := strangersSession(t, pool)
	for _, sql := range []string{
		`INSERT INTO pglease.lease_client VALUES (gen_random_uuid(), 4711, clock_timestamp() + interval '1 hour')`,
		`INSERT INTO pglease.lease_waiter (resource_id, request_id, client_id, owner_id, ttl, lock_delay, barging, joined_at)
			SELECT 'r', gen_random_uuid(), client_id, 'first', '` + ttl.String() + `', '0', false, clock_timestamp() FROM pglease.lease_client`,
		`UPDATE pglease.resource_lease SET waiting = waiting + 1`,
	} {
		if _, err := session.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return session
}

func strangersSession(t *testing.T, pool *pgxpool.Pool) *pgx.Conn {
	t.Helper()
	session, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err == nil {
		_, err = session.Exec(t.Context(), `SELECT pg_advisory_lock(4711)`)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close(context.WithoutCancel(t.Context())) })
	return session
}

// TestAServedWaiterMayLoseItsSession_W4: it is not taken for dead before it has had time to make another.
func TestAServedWaiterMayLoseItsSession_W4(t *testing.T) {
	t.Parallel()
	for try := 1; ; try++ {
		pool := pgleasetest.Pool(t)
		held := acquire(t, newClient(t, pool, pglease.Config{}), "r")
		session := stranger(t, pool, 3*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		behind := waitFor(ctx, newClient(t, pool, pglease.Config{}), "r")
		inLine(t, pool, "r", 2)
		release(t, held)
		served, gone := readRow(t, pool, "r"), time.Now()
		if err := session.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		strangersSession(t, pool)
		<-time.After(1500 * time.Millisecond) // longer than it is looked after
		after := readRow(t, pool, "r")
		slow := time.Since(gone) > 2800*time.Millisecond
		cancel()
		<-behind
		if slow && try < 20 {
			continue // the machine stood still, and it was gone for longer than meant, or its time is over
		}
		if after.lease != served.lease || !after.current {
			t.Errorf("it lost its lease: %+v, after %+v", after, served)
		}
		return
	}
}

// TestAWaiterThatDiesAsItIsServedHoldsNobodyUp_W4: the server had not yet noticed its death when the
// lease was handed to it.
func TestAWaiterThatDiesAsItIsServedHoldsNobodyUp_W4(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"dies": true, "lives": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgleasetest.Pool(t)
			held := acquire(t, newClient(t, pool, pglease.Config{}), "r")
			session := stranger(t, pool, 6*time.Second)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			live := waitFor(ctx, newClient(t, pool, pglease.Config{}), "r")
			inLine(t, pool, "r", 2)
			release(t, held)
			served := readRow(t, pool, "r")
			if !served.current || served.lease == held.Token().LeaseID().String() {
				t.Fatalf("served: %+v", served)
			}
			if dies {
				if err := session.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				next := <-live
				if next.err != nil {
					t.Fatal(next.err)
				}
				release(t, next.lease)
				var how, reason string
				var trusted bool
				err := pool.QueryRow(t.Context(), `SELECT ended, coalesce(reason, ''), ended_at > acquired_at + interval '3 s'
					FROM pglease.lease_history WHERE lease_id = $1`, served.lease).Scan(&how, &reason, &trusted)
				if err != nil || how != "released" || reason != "its process died as it was served" || !trusted {
					t.Errorf("%s, because %q, after it could have been trusted: %v, %v", how, reason, trusted, err)
				}
				return
			}
			<-time.After(1500 * time.Millisecond) // longer than it is looked after
			if r := readRow(t, pool, "r"); r.lease != served.lease || !r.current {
				t.Errorf("a live waiter lost its lease: %+v", r)
			}
			cancel()
			<-live
		})
	}
}
