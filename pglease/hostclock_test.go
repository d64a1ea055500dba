package pglease_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/pglease"
)

// clock is that of a server's host, as far as the server can see.
type clock struct{ file string }

// newClock starts a server whose clock can be set, by libfaketime.
func newClock(t *testing.T) (clock, *pgxpool.Pool) {
	t.Helper()
	libraries, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if len(libraries) == 0 {
		needs(t, "no libfaketime found; on Debian: apt-get install libfaketime")
	}
	server, pool := ownServer(t, postgres.Options{Env: []string{
		"LD_PRELOAD=" + libraries[0], "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
	}})
	home := filepath.Dir(server.DataDir()) // where the library looks for its file
	return clock{filepath.Join(home, ".faketimerc")}, pool
}

// set puts the clock that far from the true time, at once.
func (c clock) set(t *testing.T, offset string) {
	t.Helper()
	next := c.file + ".next"
	if err := os.WriteFile(next, []byte(offset+"\n"), 0o644); err != nil { //nolint:gosec // the server's user reads it
		t.Fatal(err)
	}
	if err := os.Rename(next, c.file); err != nil {
		t.Fatal(err)
	}
}

// offset is how far the server's clock is from ours.
func offset(t *testing.T, pool *pgxpool.Pool) time.Duration {
	t.Helper()
	var now time.Time
	if err := pool.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
		t.Fatal(err)
	}
	return time.Until(now)
}

func about(got, want time.Duration) bool { return (got - want).Abs() < 5*time.Second }

// TestTheServersClockIsAnHourOff_T3: of two clocks that disagree it does not matter which is right.
func TestTheServersClockIsAnHourOff_T3(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		set  string
		want time.Duration
	}{{"+3600s", time.Hour}, {"-3600s", -time.Hour}} {
		t.Run(test.set, func(t *testing.T) {
			t.Parallel()
			clock, pool := newClock(t)
			clock.set(t, test.set)
			if got := offset(t, pool); !about(got, test.want) {
				t.Fatalf("the server's clock is off by %v", got)
			}
			wholeLife(t, pool, pglease.Config{})
			client, events := observed(t, pool, pglease.Config{TTL: time.Minute, RenewEvery: 100 * time.Millisecond})
			wantTrustInside(t, acquire(t, client, "trusted"), pool)
			events.await(t, pglease.EventRenewed, 3)
			if steps, _ := events.of(pglease.EventClockStep); len(steps) > 0 {
				t.Errorf("steps: %+v", steps)
			}
		})
	}
}

// TestTheServersClockIsSet_T3 while a lease is held: forward by less than the lease has left, and
// back.
func TestTheServersClockIsSet_T3(t *testing.T) {
	t.Parallel()
	clock, pool := newClock(t)
	client, events := observed(t, pool, pglease.Config{TTL: time.Minute, RenewEvery: 200 * time.Millisecond})
	lease := acquire(t, client, "r")
	token := lease.Token()
	for i, step := range []struct {
		set  string
		want time.Duration
	}{{"+20s", 20 * time.Second}, {"+0s", -20 * time.Second}, {"-3600s", -time.Hour}} {
		clock.set(t, step.set)
		if seen := events.await(t, pglease.EventClockStep, i+1)[i]; !about(seen.Duration, step.want) {
			t.Errorf("set to %s: a step of %v was seen", step.set, seen.Duration)
		}
		events.more(t, pglease.EventRenewed, 2)
		wantState(t, lease, pglease.Held)
		if r := readRow(t, pool, "r"); lease.Token() != token || r.fence != token.Fence() || !r.current {
			t.Errorf("token %v, row %+v", lease.Token(), r)
		}
	}
	changes, _ := events.of(pglease.EventState)
	checked := 0
	for _, e := range changes {
		if e.State == pglease.Suspect {
			checked++
		}
	}
	if checked == 0 {
		t.Errorf("after a forward step the holder did not check: %+v", changes)
	}

	waiting := waitFor(t.Context(), client, "r") // the clock is now before the lease began
	events.await(t, pglease.EventWaiting, 1)
	release(t, lease)
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	if next.lease.Token().Fence() <= token.Fence() {
		t.Errorf("fences %d, then %d", token.Fence(), next.lease.Token().Fence())
	}
	wantTrustInside(t, next.lease, pool)
}

// TestTheServersClockJumpsPastALease_T3: every lease ends, and its holder is told at its next renewal,
// long before its own clock would.
func TestTheServersClockJumpsPastALease_T3(t *testing.T) {
	t.Parallel()
	clock, pool := newClock(t)
	client, events := observed(t, pool, pglease.Config{TTL: time.Minute, RenewEvery: 200 * time.Millisecond})
	rival, _ := observed(t, pool, pglease.Config{TTL: time.Minute})
	lease := acquire(t, client, "r")
	waiting := waitFor(t.Context(), rival, "r")
	events.await(t, pglease.EventRenewed, 1)
	clock.set(t, "+3600s")
	<-lease.Done()
	if err := lease.Err(); !errors.Is(err, pglease.ErrLost) || errors.Is(err, pglease.ErrUnreachable) {
		t.Errorf("Err: %v", err)
	}
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	if next.lease.Token().Fence() <= lease.Token().Fence() {
		t.Errorf("fences %d, then %d", lease.Token().Fence(), next.lease.Token().Fence())
	}
	if seen := events.await(t, pglease.EventClockStep, 1)[0]; !about(seen.Duration, time.Hour) {
		t.Errorf("a step of %v was seen", seen.Duration)
	}
}
