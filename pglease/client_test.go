package pglease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// newClient returns a client on the pool that is closed at the end of the test.
func newClient(t *testing.T, pool *pgxpool.Pool, config pglease.Config) *pglease.Client {
	t.Helper()
	client, err := pglease.New(t.Context(), pool, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		if err := client.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return client
}

// row is a resource as the database has it.
type row struct {
	lease     string
	fence     int64
	current   bool
	remaining time.Duration
	expires   time.Time
}

func readRow(t *testing.T, pool *pgxpool.Pool, resource string) (r row) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `SELECT lease_id::text, fence, ended_at IS NULL AND expires_at > clock_timestamp(), expires_at - clock_timestamp(), expires_at
		FROM pglease.resource_lease WHERE resource_id = $1`, resource).Scan(&r.lease, &r.fence, &r.current, &r.remaining, &r.expires)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantTrustInside checks that the handle's trust ends before the database's own expiry. It asks
// again where a renewal was confirmed between the readings.
func wantTrustInside(t *testing.T, l *pglease.Lease, pool *pgxpool.Pool) {
	t.Helper()
	for {
		before := readRow(t, pool, l.Resource())
		expiry := time.Now().Add(before.remaining) // at the latest: the database's clock was read before
		trusted := time.Now().Add(l.Remaining())
		if after := readRow(t, pool, l.Resource()); !after.expires.Equal(before.expires) {
			continue
		}
		if trusted.After(expiry) {
			t.Errorf("trusted for %v after the database's expiry", trusted.Sub(expiry))
		}
		return
	}
}

func TestTwoClientsWithOneOwnerNameExcludeEachOther_I4(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	a, b := newClient(t, pool, pglease.Config{Owner: "worker"}), newClient(t, pool, pglease.Config{Owner: "worker"})
	held := acquire(t, a, "r")
	_, err := b.TryAcquire(t.Context(), "r")
	var refused *pglease.HeldError
	if !errors.As(err, &refused) || !errors.Is(err, pglease.ErrHeld) || refused.Owner != "worker" || refused.Remaining <= 0 {
		t.Errorf("TryAcquire: %v", err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := acquire(t, b, "r")
	if order, err := held.Token().Compare(next.Token()); err != nil || order >= 0 {
		t.Errorf("fences %d, then %d: %v", held.Token().Fence(), next.Token().Fence(), err)
	}
}

func TestTwoGoroutinesOfOneClientExcludeEachOther_I5(t *testing.T) {
	t.Parallel()
	client := newClient(t, pgleasetest.Pool(t), pglease.Config{})
	type result struct {
		lease *pglease.Lease
		err   error
	}
	results := make(chan result)
	for range 8 {
		go func() {
			lease, err := client.TryAcquire(t.Context(), "r")
			results <- result{lease, err}
		}()
	}
	granted := 0
	for range 8 {
		switch r := <-results; {
		case r.err == nil:
			granted++
		case !errors.Is(r.err, pglease.ErrHeld):
			t.Error(r.err)
		}
	}
	if granted != 1 {
		t.Errorf("%d were granted", granted)
	}
}

func TestTheSameRequestIDGetsTheSameHandle_U1(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	client, restarted := newClient(t, pool, pglease.Config{}), newClient(t, pool, pglease.Config{})
	id := pglease.WithRequestID(pglease.NewRequestID())
	first := acquire(t, client, "r", id)
	if again := acquire(t, client, "r", id); again != first {
		t.Error("one client made two handles of one lease")
	}
	if after := acquire(t, restarted, "r", id); after.Token() != first.Token() {
		t.Errorf("token %v, then %v", first.Token(), after.Token())
	}
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.TryAcquire(t.Context(), "r", id); !errors.Is(err, pglease.ErrRequestSpent) {
		t.Errorf("after the release: %v", err)
	}
}

// TestAGrantThatWaitedHasItsFullTTL_T2: the first row of a resource has to wait for a rival's that
// is not committed; when that is rolled back, the expiry was computed before the wait.
func TestAGrantThatWaitedHasItsFullTTL_T2(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	client := newClient(t, pool, pglease.Config{TTL: 4 * time.Second, RequestTimeout: 4 * time.Second})
	rival, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = rival.Exec(t.Context(), `INSERT INTO pglease.resource_lease (resource_id, owner_id, lease_id, request_id, fence, acquired_at, expires_at, ttl)
		VALUES ('r', '', gen_random_uuid(), gen_random_uuid(), 1, now(), now(), '1 second')`)
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan *pglease.Lease)
	go func() {
		lease, err := client.TryAcquire(t.Context(), "r")
		if err != nil {
			t.Error(err)
		}
		granted <- lease
	}()
	waitForLock(t, pool)
	if _, err := rival.Exec(t.Context(), "SELECT pg_sleep(1.5)"); err != nil {
		t.Fatal(err)
	}
	if err := rival.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	lease := <-granted
	if lease == nil {
		return
	}
	if left := lease.Remaining(); left < 3*time.Second {
		t.Errorf("the handle has %v of 4 s left", left)
	}
	if r := readRow(t, pool, "r"); r.remaining < 3*time.Second {
		t.Errorf("the row has %v of 4 s left", r.remaining)
	}
}

// waitForLock returns when a backend of this database waits for a lock.
func waitForLock(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for waiting := 0; waiting == 0; {
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestReleaseTellsWhichItWas_I3(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	client, other := newClient(t, pool, pglease.Config{}), newClient(t, pool, pglease.Config{})

	lease := acquire(t, client, "released twice")
	for range 2 {
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
	}

	lease = acquire(t, client, "expired")
	pgleasetest.ExpireLease(t, pool, "expired")
	if err := lease.Release(t.Context()); !errors.Is(err, pglease.ErrLost) || !errors.Is(err, pglease.ErrExpired) {
		t.Errorf("Release of an expired lease: %v", err)
	}

	lease = acquire(t, client, "taken")
	pgleasetest.ExpireLease(t, pool, "taken")
	next := acquire(t, other, "taken")
	if err := lease.Release(t.Context()); !errors.Is(err, pglease.ErrLost) || !errors.Is(err, pglease.ErrTakenOver) {
		t.Errorf("Release of a lease that was taken over: %v", err)
	}
	if r := readRow(t, pool, "taken"); !r.current || r.fence != next.Token().Fence() {
		t.Errorf("the next owner's row: %+v", r)
	}

	lease = acquire(t, client, "same process")
	pgleasetest.ExpireLease(t, pool, "same process")
	again := acquire(t, client, "same process")
	if err := lease.Release(t.Context()); !errors.Is(err, pglease.ErrLost) {
		t.Errorf("delayed Release: %v", err)
	}
	if r := readRow(t, pool, "same process"); !r.current || r.fence != again.Token().Fence() {
		t.Errorf("the newer lease's row: %+v", r)
	}
}

func TestSchemaIsChecked(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	_, err := pglease.New(t.Context(), pool, pglease.Config{Schema: "elsewhere"})
	if !errors.Is(err, pglease.ErrSchema) {
		t.Fatalf("New: %v", err)
	}
	const want = `pglease: check schema: database schema does not fit: it is at migration 0 of line lease and 2 is needed; run: pglease migrate up --line lease --schema "elsewhere"`
	if err.Error() != want {
		t.Errorf("New: %v", err)
	}
}
