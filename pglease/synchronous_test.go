package pglease_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/pglease"
)

// A server whose commits wait for a synchronous standby that does not exist. When such a wait is
// cancelled the server answers with success, and a warning that the standby may not have it.

// ghost has commits wait, or, with a false, no longer.
func ghost(t *testing.T, pool *pgxpool.Pool, wait bool) {
	t.Helper()
	name := map[bool]string{true: "ghost", false: ""}[wait]
	execute(t, pool, "ALTER SYSTEM SET synchronous_standby_names = '"+name+"'", "SELECT pg_reload_conf()")
	for now := "?"; now != name; { // each session learns of it by itself
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRow(t.Context(), "SHOW synchronous_standby_names").Scan(&now); err != nil {
			t.Fatal(err)
		}
		conn.Release()
		time.Sleep(time.Millisecond)
	}
	if wait {
		untilCommitsWait(t, pool)
	}
}

// untilCommitsWait commits until a commit waits for the standby, and cancels that wait: it is the checkpointer that has
// them wait, and no session can see when it has learned to.
func untilCommitsWait(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	pid, done := conn.Conn().PgConn().PID(), make(chan error)
	var over atomic.Bool
	go func() {
		var err error
		for err == nil && !over.Load() {
			_, err = conn.Exec(t.Context(), "SELECT pg_logical_emit_message(true, '', '')")
		}
		done <- err
	}()
	for waiting := 0; waiting == 0; {
		if err := pool.QueryRow(t.Context(), "SELECT count(*)"+waitingForStandby+" AND pid = $1", pid).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	over.Store(true)
	execute(t, pool, fmt.Sprintf("SELECT pg_cancel_backend(%d)", pid))
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

const waitingForStandby = " FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

// awaitCommit returns when a commit waits for the standby.
func awaitCommit(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for waiting := 0; waiting == 0; {
		if err := pool.QueryRow(t.Context(), "SELECT count(*)"+waitingForStandby).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// cancelCommits cancels every such wait, until the function that it returns is called.
func cancelCommits(t *testing.T, pool *pgxpool.Pool) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		for ctx.Err() == nil {
			if _, err := pool.Exec(ctx, "SELECT pg_cancel_backend(pid)"+waitingForStandby); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return func() {
		cancel()
		<-joined
	}
}

func TestACancelledWaitForAStandbyIsNoGrant(t *testing.T) {
	t.Parallel()
	server, admin := ownServer(t, postgres.Options{Durable: true})
	client, _ := observed(t, pools.Open(t, server.URL()), pglease.Config{TTL: time.Minute, RequestTimeout: 20 * time.Second})
	release(t, acquire(t, client, "old"))
	ghost(t, admin, true)
	stop := cancelCommits(t, admin)
	for _, resource := range []string{"new", "old"} {
		_, err := client.TryAcquire(t.Context(), resource)
		if err == nil || errors.Is(err, pglease.ErrHeld) || !strings.Contains(err.Error(), "synchronous standby") {
			t.Errorf("TryAcquire: %v", err)
		}
		if r := readRow(t, admin, resource); r.current {
			t.Errorf("refused, and held: %+v", r)
		}
	}
	id := pglease.WithRequestID(pglease.NewRequestID())
	if _, err := client.TryAcquire(t.Context(), "named", id); !errors.Is(err, pglease.ErrUnknownOutcome) {
		t.Errorf("TryAcquire: %v", err)
	}
	stop()
	granted := make(chan served)
	go func() {
		lease, err := client.TryAcquire(t.Context(), "confirmed")
		granted <- served{lease, err}
	}()
	awaitCommit(t, admin)
	ghost(t, admin, false)
	if confirmed := <-granted; confirmed.err != nil {
		t.Error(confirmed.err)
	}
	if r := readRow(t, admin, "named"); acquire(t, client, "named", id).Token().Fence() != r.fence {
		t.Error("the same request has another lease now")
	}
}

func TestACancelledWaitForAStandbyExtendsNoTrust(t *testing.T) {
	t.Parallel()
	server, admin := ownServer(t, postgres.Options{Durable: true})
	client, events := observed(t, pools.Open(t, server.URL()), pglease.Config{
		TTL: time.Minute, RenewEvery: 2 * time.Second, UnitOfWork: 57 * time.Second, RequestTimeout: 20 * time.Second,
	})
	lease := acquire(t, client, "r")
	token := lease.Token()
	ghost(t, admin, true)
	awaitCommit(t, admin)
	confirmed, _ := events.of(pglease.EventRenewed)
	before := lease.Remaining()
	stop := cancelCommits(t, admin)
	for lease.State() != pglease.Suspect {
		failed := events.more(t, pglease.EventRenewError, 1)[0]
		if !strings.Contains(failed.Err.Error(), "synchronous standby") {
			t.Logf("renewal: %v", failed.Err) // the client's own limit came first
		}
	}
	if now, _ := events.of(pglease.EventRenewed); len(now) != len(confirmed) || lease.Remaining() >= before {
		t.Errorf("%d renewals became %d, trust of %v became %v", len(confirmed), len(now), before, lease.Remaining())
	}
	stop()
	ghost(t, admin, false)
	events.more(t, pglease.EventRenewed, 1)
	wantState(t, lease, pglease.Held)
	if lease.Token() != token {
		t.Errorf("token %v became %v", token, lease.Token())
	}
}

// TestACancelledWaitForAStandbyHandsNothingOver: to a waiter of another client or of its own. It
// goes on, and is served when a grant to it is confirmed.
func TestACancelledWaitForAStandbyHandsNothingOver(t *testing.T) {
	t.Parallel()
	server, admin := ownServer(t, postgres.Options{Durable: true})
	var log lines
	config := pglease.Config{
		TTL: time.Minute, RenewEvery: 20 * time.Second, RequestTimeout: 20 * time.Second,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}
	holder, own := observed(t, pools.Open(t, server.URL()), config)
	other, others := observed(t, pools.Open(t, server.URL()), config)
	for waiter, events := range map[*pglease.Client]*journal{holder: own, other: others} {
		lease := acquire(t, holder, "r")
		waiting := waitFor(t.Context(), waiter, "r")
		events.await(t, pglease.EventWaiting, 1)
		ghost(t, admin, true)
		stop := cancelCommits(t, admin)
		refused := strings.Count(log.String(), "acquire is tried again")
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
		for strings.Count(log.String(), "acquire is tried again") < refused+2 {
			select {
			case next := <-waiting:
				t.Fatalf("handed over: %v", next.err)
			case <-time.After(5 * time.Millisecond):
			}
		}
		stop()
		ghost(t, admin, false)
		next := <-waiting
		if next.err != nil {
			t.Fatal(next.err)
		}
		if r := readRow(t, admin, "r"); !r.current || r.fence != next.lease.Token().Fence() {
			t.Errorf("token %v, row %+v", next.lease.Token(), r)
		}
		release(t, next.lease)
	}
}

// TestAPlaceInLineWaitsForNothing: a join holds the row that the next release needs, so its commit waits for no
// disk and no standby. The grant does.
func TestAPlaceInLineWaitsForNothing(t *testing.T) {
	t.Parallel()
	server, admin := ownServer(t, postgres.Options{Durable: true})
	holder := newClient(t, pools.Open(t, server.URL()), pglease.Config{})
	waiter := newClient(t, pools.Open(t, server.URL()), pglease.Config{})
	held := acquire(t, holder, "r")
	first := waitFor(t.Context(), waiter, "r") // makes its session
	inLine(t, admin, "r", 1)
	release(t, held)
	next := <-first
	if next.err != nil {
		t.Fatal(next.err)
	}
	release(t, next.lease)
	held = acquire(t, holder, "r")
	ghost(t, admin, true)
	again := waitFor(t.Context(), waiter, "r")
	inLine(t, admin, "r", 1) // it would not be seen before its commit is done
	ghost(t, admin, false)
	release(t, held)
	if next = <-again; next.err != nil {
		t.Fatal(next.err)
	}
	release(t, next.lease)
}

// TestAReleaseWaitsForNothing: it grants nothing, so neither the disk nor a standby is waited for, unless its loss would
// keep the resource for long.
func TestAReleaseWaitsForNothing(t *testing.T) {
	t.Parallel()
	server, admin := ownServer(t, postgres.Options{Durable: true})
	config := pglease.Config{RequestTimeout: time.Second}
	holder, waiter := newClient(t, pools.Open(t, server.URL()), config), newClient(t, pools.Open(t, server.URL()), config)
	short, long, waits := acquire(t, holder, "short"), acquire(t, holder, "long", pglease.WithTTL(time.Hour)), acquire(t, holder, "waited for")
	waiting := waitFor(t.Context(), waiter, "waited for")
	inLine(t, admin, "waited for", 1)
	release(t, waits)
	served := <-waiting
	if served.err != nil {
		t.Fatal(served.err)
	}
	ghost(t, admin, true)
	release(t, short)
	release(t, served.lease)
	if err := long.Release(t.Context()); err == nil {
		t.Error("the release of a lease of an hour did not wait")
	}
	ghost(t, admin, false)
	release(t, long)
}

// TestAReleaseThatACrashTook: the resource is free when the TTL is over, and the next fence is greater.
func TestAReleaseThatACrashTook(t *testing.T) {
	t.Parallel()
	server, admin := ownServer(t, postgres.Options{Durable: true})
	execute(t, admin, "ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()")
	client := newClient(t, pools.Open(t, server.URL()), pglease.Config{TTL: 3 * time.Second})
	for try := 1; ; try++ {
		lease := acquire(t, client, "r")
		release(t, lease)
		if err := errors.Join(server.Kill(), server.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
		admin.Reset() // its connections are broken
		taken := readRow(t, admin, "r").current
		if !taken && try < 20 {
			continue // something else was written to the disk in between
		}
		next, err := client.Acquire(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		if !taken || next.Token().Fence() <= lease.Token().Fence() {
			t.Errorf("the crash took the release: %v; fence %d, then %d", taken, lease.Token().Fence(), next.Token().Fence())
		}
		return
	}
}
