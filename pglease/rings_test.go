package pglease_test

import (
	"context"
	"encoding/hex"
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

// TestTheListenerComesBack_W5: its session is killed, then nobody can connect for a while; waiters
// are served meanwhile, by looking.
func TestTheListenerComesBack_W5(t *testing.T) {
	t.Parallel()
	waiter, faults, pool := faulty(t, pglease.Config{PollEvery: 100 * time.Millisecond})
	holder := newClient(t, pool, pglease.Config{})
	looks := countLooks(faults)
	listener := func() (pid int) {
		err := pool.QueryRow(t.Context(), `SELECT pid FROM pg_locks l JOIN pglease.lease_client c ON l.locktype = 'advisory'
			AND (l.classid::bigint << 32 | l.objid::bigint) = c.session_key AND l.granted`).Scan(&pid)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		return pid
	}
	for range 3 {
		held := acquire(t, holder, "r")
		waiting := waitFor(t.Context(), waiter, "r")
		inLine(t, pool, "r", 1)
		for listener() == 0 {
			continue
		}
		killed := listener()
		if _, err := pool.Exec(t.Context(), "SELECT pg_terminate_backend($1)", killed); err != nil {
			t.Fatal(err)
		}
		release(t, held) // may fall before the session is back: then the waiter looks
		next := <-waiting
		if next.err != nil {
			t.Fatal(next.err)
		}
		release(t, next.lease)
	}
	if looks.Load() == 0 {
		t.Error("the waiter never looked by itself")
	}
}

func TestWaitersAreServedWhileNobodyListens_W5(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t)
	pool := pools.Open(t, url)
	refused := errors.New("refused")
	var refusing atomic.Bool
	restricted := pools.Open(t, url, func(c *pgxpool.Config) {
		c.MinConns = 2
		c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			if refusing.Load() {
				return refused
			}
			return nil
		}
	})
	said := make(chan pglease.Event, 100)
	waiter := newClient(t, restricted, pglease.Config{PollEvery: 50 * time.Millisecond, Observer: pglease.ObserverFunc(func(e pglease.Event) {
		if e.Kind == pglease.EventPollOnly {
			said <- e
		}
	})})
	refusing.Store(true)
	holder := newClient(t, pool, pglease.Config{})
	for range 3 {
		held := acquire(t, holder, "r")
		waiting := waitFor(t.Context(), waiter, "r")
		inLine(t, pool, "r", 1)
		release(t, held)
		next := <-waiting
		if next.err != nil {
			t.Fatal(next.err)
		}
		release(t, next.lease)
	}
	if e := <-said; !errors.Is(e.Err, refused) {
		t.Errorf("said: %v", e.Err)
	}
	if len(said) > 0 {
		t.Errorf("said %d times more", len(said))
	}
	refusing.Store(false)
}

// TestRingsAreShort_W6: whatever the resource's name, and never a lease id.
func TestRingsAreShort_W6(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder, waiter := newClient(t, pool, pglease.Config{}), newClient(t, pool, pglease.Config{})
	name := strings.Repeat("n", 512)
	held := acquire(t, holder, name)
	waiting := waitFor(t.Context(), waiter, name)
	inLine(t, pool, name, 1)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	var channel string
	if err := conn.QueryRow(t.Context(), "SELECT 'pglease_' || replace(client_id::text, '-', '') FROM pglease.lease_client").Scan(&channel); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "LISTEN "+channel); err != nil {
		t.Fatal(err)
	}
	release(t, held)
	ring, err := conn.Conn().WaitForNotification(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := (<-waiting).lease
	if id := next.Token().LeaseID(); len(ring.Payload) != 64 || strings.Contains(ring.Payload, hex.EncodeToString(id[:8])) {
		t.Errorf("payload %q", ring.Payload)
	}
	if _, err := conn.Exec(t.Context(), "UNLISTEN *"); err != nil {
		t.Fatal(err)
	}
	release(t, next)
}

// TestAnEntryThatDisappearsIsNoticed_W7: the waiter enters again.
func TestAnEntryThatDisappearsIsNoticed_W7(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder, waiter := newClient(t, pool, pglease.Config{TTL: 3 * time.Second}), newClient(t, pool, pglease.Config{})
	held := acquire(t, holder, "r")
	waiting := waitFor(t.Context(), waiter, "r")
	inLine(t, pool, "r", 1)
	if _, err := pool.Exec(t.Context(), "WITH gone AS (DELETE FROM pglease.lease_waiter) UPDATE pglease.resource_lease SET waiting = 0"); err != nil {
		t.Fatal(err)
	}
	inLine(t, pool, "r", 1)
	release(t, held)
	release(t, (<-waiting).lease)
}

// TestAPlaceThatACrashTookIsTakenAgain: the commit of a join does not wait for the disk, so a crash may take it,
// together with every session.
func TestAPlaceThatACrashTookIsTakenAgain(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	mine, err := pgxpool.New(t.Context(), pool.Config().ConnString()+"&application_name=mine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mine.Close)
	holder, waiter := newClient(t, pool, pglease.Config{}), newClient(t, mine, pglease.Config{})
	held := acquire(t, holder, "r")
	waiting := waitFor(t.Context(), waiter, "r")
	inLine(t, pool, "r", 1)
	execute(t, pool, "DELETE FROM pglease.lease_waiter", "UPDATE pglease.resource_lease SET waiting = 0",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mine'")
	inLine(t, pool, "r", 1)
	release(t, held)
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	release(t, next.lease)
}
