package pglease_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// lockRow locks the resource's row, as who joins its line does, until the function that it returns is called.
func lockRow(t *testing.T, pool *pgxpool.Pool, resource string) (unlock func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "SELECT FROM pglease.resource_lease WHERE resource_id = $1 FOR UPDATE", resource)
	}
	if err != nil {
		t.Error(err)
		return func() {}
	}
	unlock = sync.OnceFunc(func() {
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(unlock)
	return unlock
}

// TestAGrantOnALockedRowIsRepeated: a renewal skips a locked row, and that is not the end of the lease.
func TestAGrantOnALockedRowIsRepeated(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	id := pglease.WithRequestID(pglease.NewRequestID())
	first, second := newClient(t, pool, pglease.Config{}), newClient(t, pool, pglease.Config{})
	lease := acquire(t, first, "r", id)
	unlock := lockRow(t, pool, "r")
	again, err := second.TryAcquire(t.Context(), "r", id)
	unlock()
	if err != nil {
		t.Fatalf("the same request of another client: %v", err)
	}
	if again.Token() != lease.Token() {
		t.Errorf("tokens %v and %v", lease.Token(), again.Token())
	}
	release(t, again)
}

// TestAServedWaiterIsNotRobbedByALockedRow is of one that was served long after it last looked, so that it renews
// at once, while somebody joins the line behind it.
func TestAServedWaiterIsNotRobbedByALockedRow(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	waiter, faults, pool := faulty(t, pglease.Config{TTL: ttl})
	holder := newClient(t, pool, pglease.Config{})
	held := acquire(t, holder, "r")
	waiting := waitFor(t.Context(), waiter, "r")
	inLine(t, pool, "r", 1)
	var lock sync.Once
	faults.BeforeStatement(func(sql string) {
		if statement("Renew")(sql) {
			lock.Do(func() { time.AfterFunc(ttl/10, lockRow(t, pool, "r")) })
		}
	})
	<-time.After(ttl / 2)
	release(t, held)
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	var over int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pglease.lease_history").Scan(&over); err != nil || over != 1 {
		t.Errorf("%d leases are over, %v; want the holder's alone: the first grant was thrown away", over, err)
	}
	if r := readRow(t, pool, "r"); !r.current || r.lease != next.lease.Token().LeaseID().String() {
		t.Errorf("the waiter has %v, the database %+v", next.lease.Token(), r)
	}
	release(t, next.lease)
}
