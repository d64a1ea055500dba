package pglease_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// What a session does not wait for in the server, though a waiter of its client does.

// TestWhatWasNotListedIsLookedFor: the session was asleep when so many came that it will not wait in the server again.
func TestWhatWasNotListedIsLookedFor(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	config := pglease.Config{TTL: time.Hour, PollEvery: time.Hour / 2, DirectWake: true}
	holder, waiter := newClient(t, pool, config), newClient(t, pool, config)
	var others []*pglease.Lease
	for i := range 10 {
		others = append(others, acquire(t, holder, fmt.Sprint("other ", i)))
	}
	held, waiting, _ := sleeping(t, pool, holder, waiter, "r")
	var served []<-chan served
	for i := range others {
		served = append(served, waitFor(t.Context(), waiter, fmt.Sprint("other ", i)))
		inLine(t, pool, fmt.Sprint("other ", i), 1)
	}
	began := time.Now()
	handOver(t, others[0], served[0])
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it was served after %v, when it looked by itself", took)
	}
	handOver(t, held, waiting)
	for i := range others[1:] {
		handOver(t, others[i+1], served[i+1])
	}
}

// TestWhatIsServedAsAWaitBeginsIsLookedFor: a waiter of another resource comes and is served when the session was sent
// to wait and does not yet. Whoever serves it finds nobody asleep, and its notification is behind the wait.
func TestWhatIsServedAsAWaitBeginsIsLookedFor(t *testing.T) {
	t.Parallel()
	waiter, faults, pool := faulty(t, pglease.Config{TTL: time.Hour, PollEvery: time.Hour / 2, DirectWake: true})
	sleepsLast(t, pool)
	holder := newClient(t, pool, pglease.Config{TTL: time.Hour})
	other := acquire(t, holder, "other")
	var once sync.Once
	sent, begins := make(chan struct{}), make(chan struct{})
	faults.BeforeStatement(func(sql string) {
		if statement("Await")(sql) {
			once.Do(func() {
				close(sent)
				<-begins
			})
		}
	})
	held, waiting := acquire(t, holder, "r"), waitFor(t.Context(), waiter, "r")
	inLine(t, pool, "r", 1)
	handOver(t, held, waiting)
	<-sent
	waiting = waitFor(t.Context(), waiter, "other")
	inLine(t, pool, "other", 1)
	release(t, other)
	close(begins)
	began := time.Now()
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it was served after %v, when it looked by itself", took)
	}
	release(t, next.lease)
}

// sleepsLast makes a wait in the server last until somebody ends it.
func sleepsLast(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var is string
	if err := pool.QueryRow(t.Context(), "SELECT pg_get_functiondef('pglease.lease_await'::regproc)").Scan(&is); err != nil {
		t.Fatal(err)
	}
	lasts := strings.Replace(is, "pg_sleep(extract(epoch FROM p_most))", "pg_sleep(3600)", 1)
	if lasts == is {
		t.Fatal("lease_await does not sleep as it did")
	}
	execute(t, pool, lasts)
}

// TestABargingWaiterOfASleeperIsRung: it came while the session was asleep.
func TestABargingWaiterOfASleeperIsRung(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	config := pglease.Config{TTL: time.Hour, PollEvery: time.Hour / 2, DirectWake: true}
	holder, waiter := newClient(t, pool, config), newClient(t, pool, config)
	other := acquire(t, holder, "other")
	held, waiting, _ := sleeping(t, pool, holder, waiter, "r")
	barging := waitFor(t.Context(), waiter, "other", pglease.WithMode(pglease.Barging))
	inLine(t, pool, "other", 1)
	began := time.Now()
	handOver(t, other, barging)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it was served after %v, when it looked by itself", took)
	}
	handOver(t, held, waiting)
}

// TestWithABargingWaiterItsSessionIsNotified: its ring has nothing that could be looked up, so nothing may sleep on it.
func TestWithABargingWaiterItsSessionIsNotified(t *testing.T) {
	t.Parallel()
	waiter, faults, pool := faulty(t, pglease.Config{TTL: time.Hour, PollEvery: time.Hour / 2, DirectWake: true})
	awaits := countAwaits(faults)
	holder := newClient(t, pool, pglease.Config{TTL: time.Hour})
	other := acquire(t, holder, "other")
	barging := waitFor(t.Context(), waiter, "other", pglease.WithMode(pglease.Barging))
	inLine(t, pool, "other", 1)
	for range 3 {
		held, waiting := acquire(t, holder, "r"), waitFor(t.Context(), waiter, "r")
		inLine(t, pool, "r", 1)
		handOver(t, held, waiting)
	}
	if n := awaits.Load(); n > 0 {
		t.Errorf("its session waited in the server %d times", n)
	}
	handOver(t, other, barging)
}
