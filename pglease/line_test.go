package pglease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// served is what a waiter got.
type served struct {
	lease *pglease.Lease
	err   error
}

// waitFor acquires in the background.
func waitFor(ctx context.Context, c *pglease.Client, resource string, options ...pglease.AcquireOption) <-chan served {
	result := make(chan served, 1)
	go func() {
		lease, err := c.Acquire(ctx, resource, options...)
		result <- served{lease, err}
	}()
	return result
}

// inLine returns when n wait for the resource.
func inLine(t *testing.T, pool *pgxpool.Pool, resource string, n int) {
	t.Helper()
	for have, began := -1, time.Now(); have != n; {
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%d wait for %s, and not %d", have, resource, n)
		}
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pglease.lease_waiter WHERE resource_id = $1", resource).Scan(&have); err != nil {
			t.Fatal(err)
		}
	}
}

func release(t *testing.T, l *pglease.Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// countLooks counts the statements by which waiters look by themselves.
func countLooks(f *pgleasetest.Faults) *atomic.Int64 {
	var looks atomic.Int64
	f.BeforeStatement(func(sql string) {
		if statement("Watch")(sql) || statement("WatchOne")(sql) || statement("Promote")(sql) {
			looks.Add(1)
		}
	})
	return &looks
}

// TestReleaseHandsOver_W1: to a waiter of another client by a ring, to one of its own in memory; in
// the releasing commit, so that nobody barges in.
func TestReleaseHandsOver_W1(t *testing.T) {
	t.Parallel()
	other, faults, pool := faulty(t, pglease.Config{})
	client := newClient(t, pool, pglease.Config{})
	looks := countLooks(faults)
	for _, waiter := range []*pglease.Client{other, client} {
		held := acquire(t, client, "r")
		waiting := waitFor(t.Context(), waiter, "r")
		inLine(t, pool, "r", 1)
		release(t, held)
		if _, err := client.TryAcquire(t.Context(), "r"); !errors.Is(err, pglease.ErrHeld) {
			t.Errorf("barged in: %v", err)
		}
		next := <-waiting
		if next.err != nil {
			t.Fatal(next.err)
		}
		if order, err := held.Token().Compare(next.lease.Token()); err != nil || order >= 0 {
			t.Errorf("fences %d, %d", held.Token().Fence(), next.lease.Token().Fence())
		}
		release(t, next.lease)
		if r := readRow(t, pool, "r"); r.current {
			t.Errorf("held after both released: %+v", r)
		}
	}
	if n := looks.Load(); n > 1 { // the one after the ring
		t.Errorf("the waiter looked %d times", n)
	}
}

// TestOneWaiterIsWoken_W2: statements do not grow with the number of waiters.
func TestOneWaiterIsWoken_W2(t *testing.T) {
	t.Parallel()
	for _, waiters := range []int{1, 1000} {
		t.Run(fmt.Sprint(waiters), func(t *testing.T) {
			t.Parallel()
			// All leave at once, and one that cannot in time leaves its place behind.
			waiter, faults, pool := faulty(t, pglease.Config{TTL: time.Hour, PollEvery: time.Hour / 2, RequestTimeout: time.Minute})
			holder := newClient(t, pool, pglease.Config{TTL: time.Hour})
			held := acquire(t, holder, "r")
			ctx, cancel := context.WithCancel(t.Context())
			woken := make(chan served, waiters)
			for range waiters {
				go func() {
					lease, err := waiter.Acquire(ctx, "r")
					woken <- served{lease, err}
				}()
			}
			inLine(t, pool, "r", waiters)
			var statements atomic.Int64
			faults.BeforeStatement(func(sql string) {
				if !statement("Beat")(sql) && !strings.Contains(sql, "ping") {
					statements.Add(1)
				}
			})
			release(t, held)
			first := <-woken
			if first.err != nil {
				t.Fatal(first.err)
			}
			if n := statements.Load(); n > 2 { // the look of the one that was rung
				t.Errorf("%d statements of the waiting client for one hand-over", n)
			}
			select {
			case second := <-woken:
				t.Errorf("another was woken: %v, %v", second.lease, second.err)
			default:
			}
			cancel()
			for range waiters - 1 {
				if w := <-woken; !errors.Is(w.err, pglease.ErrHeld) || !errors.Is(w.err, context.Canceled) {
					t.Fatalf("a cancelled waiter: %v", w.err)
				}
			}
			inLine(t, pool, "r", 0)
			release(t, first.lease)
		})
	}
}

// TestNoWakeUpIsLost_W3: two clients on one key, with no look of their own to fall back on. Each
// release falls anywhere between the other's "it is held" and "I am in line".
func TestNoWakeUpIsLost_W3(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, direct bool) {
		pool := pgleasetest.Pool(t)
		var wg sync.WaitGroup
		for range 2 {
			client := newClient(t, pool, pglease.Config{TTL: time.Hour, PollEvery: time.Hour / 2, DirectWake: direct})
			wg.Go(func() {
				for range 300 {
					lease, err := client.Acquire(t.Context(), "r")
					if err != nil {
						t.Errorf("Acquire: %v", err)
						return
					}
					release(t, lease)
				}
			})
		}
		wg.Wait()
	})
}

// TestTheReleaseComesBetween_W3 puts the release exactly there.
func TestTheReleaseComesBetween_W3(t *testing.T) {
	t.Parallel()
	waiter, faults, pool := faulty(t, pglease.Config{TTL: time.Hour, PollEvery: time.Hour / 2})
	holder := newClient(t, pool, pglease.Config{})
	held := acquire(t, holder, "r")
	var once sync.Once
	faults.BeforeStatement(func(sql string) {
		if joins(sql) {
			once.Do(func() { release(t, held) })
		}
	})
	lease, err := waiter.Acquire(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	release(t, lease)
}

// TestDeadAndLateHeadsArePassedOver_W4_L3: the first is past its life though its session lives, as
// when it is frozen; the second is past its deadline; the third's entry has no client; the fourth
// has left.
func TestDeadAndLateHeadsArePassedOver_W4_L3(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder := newClient(t, pool, pglease.Config{})
	held := acquire(t, holder, "r")
	var cancels []context.CancelFunc
	var dead []<-chan served
	for i := range 4 {
		client := newClient(t, pool, pglease.Config{Owner: fmt.Sprint("dead ", i)})
		ctx, cancel := context.WithCancel(t.Context())
		cancels = append(cancels, cancel)
		dead = append(dead, waitFor(ctx, client, "r"))
		inLine(t, pool, "r", i+1)
	}
	live := waitFor(t.Context(), newClient(t, pool, pglease.Config{}), "r")
	inLine(t, pool, "r", 5)
	cancels[3]()
	<-dead[3]
	for _, sql := range []string{
		`UPDATE pglease.lease_client c SET alive_until = clock_timestamp() FROM pglease.lease_waiter w WHERE w.client_id = c.client_id AND owner_id = 'dead 0'`,
		`UPDATE pglease.lease_waiter SET deadline = clock_timestamp() WHERE owner_id = 'dead 1'`,
		`DELETE FROM pglease.lease_client c USING pglease.lease_waiter w WHERE w.client_id = c.client_id AND owner_id = 'dead 2'`,
	} {
		if tag, err := pool.Exec(t.Context(), sql); err != nil || tag.RowsAffected() != 1 {
			t.Fatalf("%s: %v, %v", sql, tag, err)
		}
	}
	release(t, held)
	next := <-live
	if next.err != nil {
		t.Fatal(next.err)
	}
	release(t, next.lease)
	for i, cancel := range cancels {
		cancel()
		if i < 3 {
			if w := <-dead[i]; w.lease != nil { // it noticed that its place was gone and entered again
				release(t, w.lease)
			}
		}
	}
}

// TestADeadSessionIsADeadWaiter_W4: no silence has to be waited for.
func TestADeadSessionIsADeadWaiter_W4(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder := newClient(t, pool, pglease.Config{})
	held := acquire(t, holder, "r")
	// A waiter of a process that is gone: it beat a moment ago, and its advisory lock is free.
	for _, sql := range []string{
		`INSERT INTO pglease.lease_client VALUES (gen_random_uuid(), 4711, clock_timestamp() + interval '15 seconds')`,
		`INSERT INTO pglease.lease_waiter (resource_id, request_id, client_id, owner_id, ttl, lock_delay, barging, joined_at)
			SELECT 'r', gen_random_uuid(), client_id, 'gone', '1 hour', '0', false, clock_timestamp() FROM pglease.lease_client`,
		`UPDATE pglease.resource_lease SET waiting = waiting + 1`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	live := waitFor(t.Context(), newClient(t, pool, pglease.Config{}), "r")
	inLine(t, pool, "r", 2)
	release(t, held)
	if next := <-live; next.err != nil {
		t.Error(next.err)
	} else {
		release(t, next.lease)
	}
}

func TestServedInTheOrderOfComing(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	a, b := newClient(t, pool, pglease.Config{}), newClient(t, pool, pglease.Config{})
	held := acquire(t, a, "r")
	var waiting []<-chan served
	for i := range 20 {
		waiting = append(waiting, waitFor(t.Context(), []*pglease.Client{a, b}[i%2], "r"))
		inLine(t, pool, "r", i+1)
	}
	release(t, held)
	var fences []int64
	for _, w := range waiting {
		next := <-w
		if next.err != nil {
			t.Fatal(next.err)
		}
		fences = append(fences, next.lease.Token().Fence())
		release(t, next.lease)
	}
	if !slices.IsSorted(fences) {
		t.Errorf("fences %v", fences)
	}
}
