package pglease_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// renewals counts confirmed renewals.
type renewals struct {
	confirmed atomic.Int64
	each      chan struct{}
}

func newRenewals() *renewals { return &renewals{each: make(chan struct{}, 1)} }

func (r *renewals) Observe(e pglease.Event) {
	if e.Kind != pglease.EventRenewed {
		return
	}
	r.confirmed.Add(1)
	select {
	case r.each <- struct{}{}:
	default:
	}
}

// more returns when n more renewals than now have been confirmed.
func (r *renewals) more(t *testing.T, n int64) {
	t.Helper()
	for want := r.confirmed.Load() + n; r.confirmed.Load() < want; {
		select {
		case <-r.each:
		case <-t.Context().Done():
			t.Fatal("no renewals")
		}
	}
}

func TestKilledBackendsDoNotLoseALease_I6(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	seen := newRenewals()
	client := newClient(t, pool, pglease.Config{TTL: 4 * time.Second, RenewEvery: 100 * time.Millisecond, Observer: seen})
	lease := acquire(t, client, "r")
	token := lease.Token()
	for range 5 {
		seen.more(t, 2)
		if _, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
			t.Fatal(err)
		}
	}
	seen.more(t, 2)
	wantState(t, lease, pglease.Held)
	if r := readRow(t, pool, "r"); lease.Token() != token || r.fence != token.Fence() || !r.current {
		t.Errorf("token %v, row %+v", lease.Token(), r)
	}
}

// TestReleaseDuringARenewal_I8 holds a renewal up just before it is sent, and just before its reply
// is read, and releases meanwhile.
func TestReleaseDuringARenewal_I8(t *testing.T) {
	t.Parallel()
	client, faults, pool := faulty(t, pglease.Config{TTL: 4 * time.Second, RenewEvery: 50 * time.Millisecond})
	var sent sync.Map // the statements of the lease, in which it is named by number
	var released atomic.Bool
	faults.BeforeStatement(func(sql string) {
		if released.Load() {
			sent.Store(sql, true)
		}
	})
	for range 20 {
		lease := acquire(t, client, "r")
		flying, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		faults.BeforeStatement(func(sql string) {
			if statement("Renew")(sql) {
				once.Do(func() { close(flying); <-goOn })
			}
		})
		<-flying
		done := make(chan error)
		go func() { done <- lease.Release(t.Context()) }()
		for lease.State() != pglease.Releasing {
			continue
		}
		close(goOn)
		if err := <-done; err != nil {
			t.Fatalf("Release: %v", err)
		}
		released.Store(true)
		if r := readRow(t, pool, "r"); r.current {
			t.Fatal("the row is held after Release")
		}
		<-time.After(rand.N(60 * time.Millisecond)) // in which a late renewal would show
		released.Store(false)
	}
	sent.Range(func(sql, _ any) bool {
		t.Errorf("sent after a release: %.60s", sql)
		return true
	})
}

func TestReleaseRightAfterAcquire_I8(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	client := newClient(t, pool, pglease.Config{TTL: pglease.MinTTL})
	expired := 0
	for range 200 {
		lease, err := client.TryAcquire(t.Context(), "r")
		if err == nil {
			err = lease.Release(t.Context())
		}
		switch {
		case errors.Is(err, pglease.ErrExpired), errors.Is(err, context.DeadlineExceeded): // the machine stood still for that long
			expired++
		case err != nil:
			t.Fatal(err)
		}
		if r := readRow(t, pool, "r"); r.current && err == nil {
			t.Fatal("the row is held after Release")
		}
	}
	if expired > 100 {
		t.Errorf("%d of 200 leases were over before their release", expired)
	}
}

// repeats is how often a race is tried: n, or PGLEASE_REPEAT times.
func repeats(t *testing.T, n int) int {
	t.Helper()
	if text := os.Getenv("PGLEASE_REPEAT"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// TestCloseDuringRenewal_I8: CI runs it 10,000 times under the race detector.
func TestCloseDuringRenewal_I8(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	for range repeats(t, 100) {
		client, err := pglease.New(t.Context(), pool, pglease.Config{TTL: 10 * time.Second, RenewEvery: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		lease := acquire(t, client, "r")
		<-time.After(rand.N(12 * time.Millisecond)) // a random moment of the renewal
		if err := client.Close(t.Context()); err != nil {
			t.Fatalf("Close: %v", err)
		}
		if r := readRow(t, pool, "r"); r.current || lease.State() != pglease.Released {
			t.Fatalf("row %+v, handle %v", r, lease.State())
		}
	}
}

// TestARowLockLongerThanTheTTL_L2: the renewal cannot get at its row.
func TestARowLockLongerThanTheTTL_L2(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	client := newClient(t, pool, pglease.Config{TTL: time.Second})
	locked, other := acquire(t, client, "locked"), acquire(t, client, "other")
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM pglease.resource_lease WHERE resource_id = 'locked' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	wantTrustInside(t, locked, pool)
	<-locked.Done()
	wantState(t, other, pglease.Held) // one blocked row delays no other lease
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestADrainedPoolDoesNotLoseLeases_L4(t *testing.T) {
	t.Parallel()
	const conns = 2
	pool := pools.Open(t, pgleasetest.URL(t), pools.Conns(conns))
	seen := newRenewals()
	client := newClient(t, pool, pglease.Config{TTL: time.Second, Observer: seen})
	lease := acquire(t, client, "r")
	var drained []*pgxpool.Conn
	for range conns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		drained = append(drained, conn)
	}
	seen.more(t, 6) // two TTLs
	wantState(t, lease, pglease.Held)
	for _, conn := range drained {
		conn.Release()
	}
}

// TestAStatementTimeoutOnTheRole_T5: a release that has to wait for its row is cut off by the server.
func TestAStatementTimeoutOnTheRole_T5(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t)
	honest := pools.Open(t, url)
	pool := pools.Open(t, url, pools.Conns(1), pools.Settings(map[string]string{"statement_timeout": "200ms"}))
	client := newClient(t, pool, pglease.Config{})
	lease := acquire(t, client, "r")

	tx, err := honest.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM pglease.resource_lease FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	err = lease.Release(t.Context())
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "57014" || !strings.Contains(err.Error(), `release "r"`) {
		t.Errorf("Release: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil { // on the pool's only connection
		t.Errorf("Release again: %v", err)
	}
	if r := readRow(t, honest, "r"); r.current {
		t.Error("the row is held")
	}
}

// TestACancelledContextLeavesNoLease_U5 cancels at every statement that the acquire, the wait and
// the release send: before it is sent, and after the server has answered.
func TestACancelledContextLeavesNoLease_U5(t *testing.T) {
	t.Parallel()
	client, faults, pool := faulty(t, pglease.Config{TTL: 10 * time.Second, PollEvery: 10 * time.Millisecond})
	blocker := newClient(t, pool, pglease.Config{})
	var counting atomic.Int64
	var joining atomic.Bool
	var strike atomic.Pointer[func(n int64, sql string)]
	faults.BeforeStatement(func(sql string) {
		n := counting.Add(1)
		if joins(sql) {
			joining.Store(true)
		}
		if f := strike.Load(); f != nil {
			(*f)(n, sql)
		}
	})
	run := func(t *testing.T, cut func(n int64, sql string, cancel context.CancelFunc)) (statements int64) {
		t.Helper()
		counting.Store(0)
		joining.Store(false)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := func(n int64, sql string) { cut(n, sql, cancel) }
		strike.Store(&f)
		defer strike.Store(nil)
		held := acquire(t, blocker, "r")
		released := make(chan struct{})
		go func() { // some runs join before this release, some after
			defer close(released)
			for !joining.Load() && ctx.Err() == nil {
				continue
			}
			if err := held.Release(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}()
		lease, err := client.Acquire(ctx, "r")
		<-released
		if err != nil {
			if r := readRow(t, pool, "r"); r.current {
				t.Errorf("Acquire: %v, and the row is held: %+v", err, r)
			}
			return counting.Load()
		}
		if err := lease.Release(ctx); err != nil {
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("second Release: %v", err)
			}
		}
		if r := readRow(t, pool, "r"); r.current {
			t.Errorf("released, and the row is held: %+v", r)
		}
		return counting.Load()
	}
	statements := run(t, func(int64, string, context.CancelFunc) {})
	if statements < 4 {
		t.Fatalf("%d statements in all", statements)
	}
	for boundary := int64(1); boundary <= statements+2; boundary++ {
		run(t, func(n int64, _ string, cancel context.CancelFunc) {
			if n == boundary {
				cancel()
			}
		})
		run(t, func(n int64, sql string, cancel context.CancelFunc) {
			if n == boundary { // executed, and its answer is lost as the context ends
				lost := faults.LoseNextReply(func(s string) bool { return s == sql })
				go func() {
					select {
					case <-lost.Done():
					case <-t.Context().Done():
					}
					cancel()
				}()
			}
		})
	}
}
