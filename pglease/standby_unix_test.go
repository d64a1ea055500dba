//go:build unix

package pglease_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/pglease"
)

// pair is a primary, a standby that follows it, and the URL of whichever is the primary.
type pair struct {
	primary, standby *postgres.Server
	url              string
}

func newPair(t *testing.T) pair {
	t.Helper()
	primary, _ := ownServer(t, postgres.Options{Durable: true})
	standby, err := primary.Standby(t.Context(), postgres.Options{Durable: true})
	if errors.Is(err, os.ErrNotExist) {
		needs(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, standby)
	first, second := parsed(t, primary.URL()), parsed(t, standby.URL())
	both := strings.Replace(primary.URL(), first.Host, first.Host+","+second.Host, 1)
	return pair{primary, standby, both + "&target_session_attrs=read-write&connect_timeout=2"}
}

func parsed(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// replicated returns when the standby has all that the primary has committed, also what did not wait for the disk:
// the commit of a message does, and so for all before it.
func (p pair) replicated(t *testing.T) {
	t.Helper()
	var written string
	primary, standby := pools.Open(t, p.primary.URL()), pools.Open(t, p.standby.URL())
	if err := primary.QueryRow(t.Context(), "SELECT pg_logical_emit_message(true, '', '')::text").Scan(&written); err != nil {
		t.Fatal(err)
	}
	for there := false; !there; {
		if err := standby.QueryRow(t.Context(), "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", written).Scan(&there); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	primary.Close()
	standby.Close()
}

// fail kills the primary and makes the standby the new one.
func (p pair) fail(t *testing.T) {
	t.Helper()
	if err := p.primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestALeaseGoesOnAfterAFailover_T6: with its fence, and without a word to the client. Who waited
// meanwhile is served.
func TestALeaseGoesOnAfterAFailover_T6(t *testing.T) {
	t.Parallel()
	servers := newPair(t)
	config := pglease.Config{TTL: time.Minute, RenewEvery: 200 * time.Millisecond}
	client, events := observed(t, pools.Open(t, servers.url), config)
	waiter, waits := observed(t, pools.Open(t, servers.url), config)
	lease := acquire(t, client, "r")
	token := lease.Token()
	waiting := waitFor(t.Context(), waiter, "r")
	waits.await(t, pglease.EventWaiting, 1)
	servers.replicated(t)

	servers.fail(t)
	events.more(t, pglease.EventRenewed, 3)
	wantState(t, lease, pglease.Held)
	standby := pools.Open(t, servers.standby.URL())
	if r := readRow(t, standby, "r"); lease.Token() != token || r.fence != token.Fence() || r.lease != token.LeaseID().String() || !r.current {
		t.Errorf("token %v, row %+v", lease.Token(), r)
	}
	releaseAgain(t, lease)
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	if before, now := generation(token.Fence()), generation(next.lease.Token().Fence()); now != before+1 {
		t.Errorf("generation %d, then %d", before, now)
	}
}

func generation(fence int64) int64 { return fence >> 41 }

// TestFencesGrowThoughGrantsWereLost: the last grants never reached the standby. Then the old
// primary comes back, and the client that knows better refuses its grants.
func TestFencesGrowThoughGrantsWereLost(t *testing.T) {
	t.Parallel()
	servers := newPair(t)
	pool := pools.Open(t, servers.url)
	client, _ := observed(t, pool, pglease.Config{TTL: time.Minute, RenewEvery: 500 * time.Millisecond})
	release(t, acquire(t, client, "r"))
	servers.replicated(t)
	servers.cutOff(t)
	var greatest int64
	for range 3 {
		lease := acquire(t, client, "r")
		greatest = lease.Token().Fence()
		release(t, lease)
	}
	lost := acquire(t, client, "lost")

	servers.fail(t)
	pool.Reset()
	lease := acquire(t, client, "r")
	if fence := lease.Token().Fence(); fence <= greatest || generation(fence) != generation(greatest)+1 {
		t.Errorf("fence %d of generation %d after %d of %d", fence, generation(fence), greatest, generation(greatest))
	}
	<-lost.Done()
	if err := lost.Err(); !errors.Is(err, pglease.ErrLost) {
		t.Errorf("a lease that the new primary does not have: %v", err)
	}

	if err := servers.primary.Restart(t.Context()); err != nil { // first in the URL, and writable
		t.Fatal(err)
	}
	pool.Reset()
	if _, err := client.TryAcquire(t.Context(), "s"); !errors.Is(err, pglease.ErrStaleServer) {
		t.Errorf("TryAcquire at the old primary: %v", err)
	}
	if r := readRow(t, pools.Open(t, servers.primary.URL()), "s"); r.current {
		t.Errorf("the refused grant is held: %+v", r)
	}
	if err := servers.primary.Kill(); err != nil {
		t.Fatal(err)
	}
	pool.Reset()
	if s := acquire(t, client, "s"); generation(s.Token().Fence()) != generation(lease.Token().Fence()) {
		t.Errorf("token %v", s.Token())
	}
}

// TestAnOldPrimaryRenewsNothing: it has the lease's row, and comes back while the new one is away. What
// it says of the lease is not believed: the new primary may have granted the resource to another.
func TestAnOldPrimaryRenewsNothing(t *testing.T) {
	t.Parallel()
	servers := newPair(t)
	client, events := observed(t, pools.Open(t, servers.url), pglease.Config{TTL: time.Minute, RenewEvery: 200 * time.Millisecond})
	lease := acquire(t, client, "r")
	servers.replicated(t)
	servers.fail(t)
	events.more(t, pglease.EventRenewed, 2) // by the new primary
	if err := servers.standby.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := servers.primary.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused := func() (n int) {
		failed, _ := events.of(pglease.EventRenewError)
		for _, e := range failed {
			if errors.Is(e.Err, pglease.ErrStaleServer) {
				n++
			}
		}
		return n
	}
	renewed, _ := events.of(pglease.EventRenewed)
	for refused() < 3 {
		events.more(t, pglease.EventRenewError, 1)
	}
	if again, _ := events.of(pglease.EventRenewed); len(again) != len(renewed) {
		t.Errorf("%d renewals at the old primary", len(again)-len(renewed))
	}
	if r := readRow(t, pools.Open(t, servers.primary.URL()), "r"); !r.current {
		t.Errorf("the old primary has %+v", r)
	}
	wantState(t, lease, pglease.Held) // by what the new one promised, until that runs out
}

// cutOff stops the process that sends to the standby. Stopping the receiver would not do: what was
// sent lies in the kernel's buffers.
func (p pair) cutOff(t *testing.T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var sender int
	if err := conn.QueryRow(t.Context(), "SELECT pid FROM pg_stat_replication WHERE state = 'streaming'").Scan(&sender); err != nil || sender < 2 {
		t.Fatal(sender, err)
	}
	if err := syscall.Kill(sender, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// TestThePoolReachesAStandby_T6: the address leads to a standby for a while, as a name does that was
// changed too early.
func TestThePoolReachesAStandby_T6(t *testing.T) {
	t.Parallel()
	servers := newPair(t)
	var port atomic.Value
	port.Store(pools.Open(t, servers.primary.URL()).Config().ConnConfig.Port)
	pool := pools.Open(t, servers.primary.URL(), func(c *pgxpool.Config) {
		c.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			c.Port = port.Load().(uint16)
			return nil
		}
	})
	client, events := observed(t, pool, pglease.Config{
		TTL: time.Minute, RenewEvery: 200 * time.Millisecond, UnitOfWork: 59 * time.Second, RequestTimeout: 5 * time.Second,
	})
	lease := acquire(t, client, "r")
	token := lease.Token()
	if _, err := client.TryAcquire(t.Context(), "r"); !errors.Is(err, pglease.ErrHeld) { // and so asks by a read from now on
		t.Fatal(err)
	}
	servers.replicated(t)

	standby := pools.Open(t, servers.standby.URL())
	port.Store(standby.Config().ConnConfig.Port)
	pool.Reset()
	if err := servers.primary.Kill(); err != nil {
		t.Fatal(err)
	}
	for !readOnly(events.more(t, pglease.EventRenewError, 1)[0].Err) {
		continue
	}
	if _, err := client.TryAcquire(t.Context(), "s"); !readOnly(err) || errors.Is(err, pglease.ErrHeld) {
		t.Errorf("TryAcquire at a standby: %v", err)
	}
	if _, err := client.TryAcquire(t.Context(), "r"); !readOnly(err) || errors.Is(err, pglease.ErrHeld) {
		t.Errorf("a standby's row, which may be old, was taken for the truth: %v", err)
	}
	for lease.State() != pglease.Suspect {
		events.more(t, pglease.EventRenewError, 1)
	}
	if err := servers.standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	events.more(t, pglease.EventRenewed, 1)
	acquire(t, client, "s")
	wantState(t, lease, pglease.Held)
	if r := readRow(t, standby, "r"); lease.Token() != token || r.fence != token.Fence() || !r.current {
		t.Errorf("token %v, row %+v", lease.Token(), r)
	}
}

func readOnly(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "25006"
}
