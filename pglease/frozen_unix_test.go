//go:build unix

package pglease_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// protected returns a database with the resource that a worker process writes to.
func protected(t *testing.T) (url string, pool *pgxpool.Pool) {
	t.Helper()
	url = pgleasetest.URL(t)
	pool = pools.Open(t, url)
	execute(t, pool, "CREATE TABLE protected (body text, greatest_fence bigint)", "INSERT INTO protected VALUES ('', 0)")
	return url, pool
}

// TestAHolderThatWasFrozen_I11: stopped beyond its TTL, while another takes over and writes.
//
//	holder (process)        test
//	acquires
//	SIGSTOP  <------------
//	                        waits in line, is granted at the expiry, writes
//	(word in its pipe) <---
//	SIGCONT  <------------
//	asks its lease: LOST
//	writes all the same: the resource refuses
func TestAHolderThatWasFrozen_I11(t *testing.T) {
	t.Parallel()
	url, pool := protected(t)
	holder := startWorker(t, workerOrder{URL: url, Resource: "r"})
	var acquired workerReport
	if err := holder.out.Decode(&acquired); err != nil || acquired.Err != "" {
		t.Fatal(err, acquired.Err)
	}
	if err := holder.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	lease, err := newClient(t, pool, pglease.Config{}).Acquire(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	stale, err := fence.Parse(acquired.Token)
	if err != nil {
		t.Fatal(err)
	}
	if order, err := stale.Compare(lease.Token()); err != nil || order >= 0 {
		t.Errorf("token %v, then %v", stale, lease.Token())
	}
	tag, err := pool.Exec(t.Context(), "UPDATE protected SET body = 'the next owner''s', greatest_fence = $1 WHERE greatest_fence < $1", lease.Token().Fence())
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatal(tag, err)
	}
	if err := holder.in.Encode("go on"); err != nil {
		t.Fatal(err)
	}
	if err := holder.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	report := holder.report(t)
	if report.State != pglease.Lost.String() || report.Wrote != 0 {
		t.Errorf("the holder saw its lease %s and wrote %d rows", report.State, report.Wrote)
	}
	release(t, lease)
}

// TestAServedWaiterIsStoppedAndLosesItsSessions_W4: whoever handed the lease to it takes it for dead and ends the
// lease, though not before this one has stopped trusting it.
//
//	waiter (process)        test
//	is served, says so
//	SIGSTOP  <------------
//	                        ends its sessions
//	                        waits in line, is granted before the TTL is over
//	(word in its pipe) <---
//	SIGCONT  <------------
//	asks its lease: LOST
func TestAServedWaiterIsStoppedAndLosesItsSessions_W4(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	url, pool := protected(t)
	held := acquire(t, newClient(t, pool, pglease.Config{}), "r")
	waiter := startWorker(t, workerOrder{URL: url + "&application_name=stopped", Resource: "r", TTL: ttl})
	inLine(t, pool, "r", 1)
	behind := waitFor(t.Context(), newClient(t, pool, pglease.Config{}), "r")
	inLine(t, pool, "r", 2)
	release(t, held)
	var acquired workerReport
	if err := waiter.out.Decode(&acquired); err != nil || acquired.Err != "" {
		t.Fatal(err, acquired.Err)
	}
	if err := waiter.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	served := readRow(t, pool, "r")
	if _, err := pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'stopped'"); err != nil {
		t.Fatal(err)
	}
	next := <-behind
	if next.err != nil {
		t.Fatal(next.err)
	}
	if err := errors.Join(waiter.in.Encode("go on"), waiter.cmd.Process.Signal(syscall.SIGCONT)); err != nil {
		t.Fatal(err)
	}
	if report := waiter.report(t); report.State != pglease.Lost.String() {
		t.Errorf("it saw its lease %s; the next owner has fence %d, it had %d", report.State, next.lease.Token().Fence(), served.fence)
	}
	release(t, next.lease)
}
