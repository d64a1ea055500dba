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

// TestExpiryWithoutARelease: the holder dies, and the first in line takes over within TTL + 250 ms of
// that; also a holder that was itself served from the line.
func TestExpiryWithoutARelease(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	holder, faults, pool := faulty(t, pglease.Config{TTL: ttl})
	second, secondFaults := pgleasetestClient(t, pool, pglease.Config{TTL: ttl})
	third := newClient(t, pool, pglease.Config{TTL: ttl})
	held := acquire(t, holder, "r")
	secondWaits := waitFor(t.Context(), second, "r")
	inLine(t, pool, "r", 1)
	thirdWaits := waitFor(t.Context(), third, "r")
	inLine(t, pool, "r", 2)

	faults.Freeze() // nothing of the holder arrives any more
	defer faults.Unfreeze()
	died := time.Now()
	next := <-secondWaits
	if next.err != nil {
		t.Fatal(next.err)
	}
	wantTakeover(t, died, ttl)
	wantState(t, held, pglease.Lost)

	secondFaults.Freeze()
	defer secondFaults.Unfreeze()
	died = time.Now()
	last := <-thirdWaits
	if last.err != nil {
		t.Fatal(last.err)
	}
	wantTakeover(t, died, ttl)
	release(t, last.lease)
}

func wantTakeover(t *testing.T, died time.Time, ttl time.Duration) {
	t.Helper()
	if took := time.Since(died); took > ttl+250*time.Millisecond {
		t.Errorf("taken over %v after the holder's death, TTL %v", took, ttl)
	}
}

// pgleasetestClient returns a client of the pool's database with faults of its own.
func pgleasetestClient(t *testing.T, pool *pgxpool.Pool, config pglease.Config) (*pglease.Client, *pgleasetest.Faults) {
	t.Helper()
	faults := pgleasetest.NewFaults()
	return newClient(t, faults.Pool(t, pool.Config().ConnString()), config), faults
}

func TestAFullLineIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder := newClient(t, pool, pglease.Config{})
	waiter := newClient(t, pool, pglease.Config{MaxWaiters: 2})
	held := acquire(t, holder, "r")
	ctx, cancel := context.WithCancel(t.Context())
	first, second := waitFor(ctx, waiter, "r"), waitFor(ctx, waiter, "r")
	inLine(t, pool, "r", 2)
	before := readVersion(t, pool, "r")
	if _, err := waiter.Acquire(t.Context(), "r"); !errors.Is(err, pglease.ErrQueueFull) {
		t.Errorf("a third: %v", err)
	}
	if after := readVersion(t, pool, "r"); after != before {
		t.Errorf("the refusal wrote: row %v became %v", before, after)
	}
	cancel()
	<-first
	<-second
	release(t, held)

	small := newClient(t, pool, pglease.Config{MaxWaiting: 1})
	held = acquire(t, holder, "r")
	waiting := waitFor(t.Context(), small, "r")
	inLine(t, pool, "r", 1)
	if _, err := small.Acquire(t.Context(), "r"); !errors.Is(err, pglease.ErrQueueFull) {
		t.Errorf("a client's second: %v", err)
	}
	release(t, held)
	release(t, (<-waiting).lease)
}

// readVersion changes whenever the row is written or locked.
func readVersion(t *testing.T, pool *pgxpool.Pool, resource string) (v [2]string) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT xmin::text, xmax::text FROM pglease.resource_lease WHERE resource_id = $1", resource).Scan(&v[0], &v[1]); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestMaxWaitIsAWaitersDeadline(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder, waiter := newClient(t, pool, pglease.Config{}), newClient(t, pool, pglease.Config{})
	held := acquire(t, holder, "r")
	_, err := waiter.Acquire(t.Context(), "r", pglease.WithMaxWait(100*time.Millisecond))
	if !errors.Is(err, pglease.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Acquire: %v", err)
	}
	inLine(t, pool, "r", 0)
	release(t, held)
	if r := readRow(t, pool, "r"); r.current {
		t.Errorf("handed to one that had left: %+v", r)
	}
}

// TestALockDelayFollowsAnExpiry and not a release.
func TestALockDelayFollowsAnExpiry(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	client, other := newClient(t, pool, pglease.Config{}), newClient(t, pool, pglease.Config{})
	release(t, acquire(t, client, "r", pglease.WithLockDelay(time.Hour)))
	acquire(t, client, "r", pglease.WithLockDelay(time.Second))
	pgleasetest.ExpireLease(t, pool, "r")
	began := time.Now()
	if _, err := other.TryAcquire(t.Context(), "r"); !errors.Is(err, pglease.ErrHeld) {
		t.Errorf("TryAcquire right after the expiry: %v", err)
	}
	lease, err := other.Acquire(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	// ExpireLease sets the expiry back to the moment of the grant at most.
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("granted %v after the expiry, with a delay of 1 s", took)
	}
	release(t, lease)
}

func TestBargingPassesTheLine(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder, waiter := newClient(t, pool, pglease.Config{}), newClient(t, pool, pglease.Config{})
	mode := pglease.WithMode(pglease.Barging)
	first := 0 // how often the owner that released and acquired again came first
	for first == 0 {
		held := acquire(t, holder, "r")
		waiting := waitFor(t.Context(), waiter, "r", mode)
		inLine(t, pool, "r", 1)
		for range 10 {
			release(t, held)
			lease, err := holder.TryAcquire(t.Context(), "r", mode)
			if errors.Is(err, pglease.ErrHeld) {
				held = nil
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			held = lease
			first++
		}
		if held != nil {
			release(t, held)
		}
		next := <-waiting // whoever comes first, the one who waits is served in the end
		if next.err != nil {
			t.Fatal(next.err)
		}
		release(t, next.lease)
		inLine(t, pool, "r", 0)
	}
}

func TestHandOverToANamedSuccessor(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder := newClient(t, pool, pglease.Config{})
	first, named := newClient(t, pool, pglease.Config{Owner: "first"}), newClient(t, pool, pglease.Config{Owner: "named"})
	held := acquire(t, holder, "r")
	firstWaits := waitFor(t.Context(), first, "r")
	inLine(t, pool, "r", 1)
	if err := held.HandOver(t.Context(), "named"); !errors.Is(err, pglease.ErrNoSuccessor) {
		t.Errorf("HandOver to nobody: %v", err)
	}
	wantState(t, held, pglease.Held)
	if r := readRow(t, pool, "r"); !r.current || r.fence != held.Token().Fence() {
		t.Errorf("the lease was not kept: %+v", r)
	}
	namedWaits := waitFor(t.Context(), named, "r")
	inLine(t, pool, "r", 2)
	if err := held.HandOver(t.Context(), "named"); err != nil {
		t.Fatal(err)
	}
	next := <-namedWaits
	if next.err != nil {
		t.Fatal(next.err)
	}
	release(t, next.lease)
	release(t, (<-firstWaits).lease)
}

func TestDescribeTellsThePlaceInLine(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder, waiter := newClient(t, pool, pglease.Config{Owner: "holder"}), newClient(t, pool, pglease.Config{Owner: "waiter"})
	if d, err := holder.Describe(t.Context(), "never"); err != nil || d.Held || d.Fence != 0 || len(d.Line) != 0 {
		t.Errorf("never acquired: %+v, %v", d, err)
	}
	release(t, acquire(t, holder, "r"))
	held := acquire(t, holder, "r")
	ids := []pglease.RequestID{pglease.NewRequestID(), pglease.NewRequestID()}
	var waiting []<-chan served
	for i, id := range ids {
		waiting = append(waiting, waitFor(t.Context(), waiter, "r", pglease.WithRequestID(id)))
		inLine(t, pool, "r", i+1)
	}
	d, err := waiter.Describe(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	if !d.Held || d.Owner != "holder" || d.Fence != held.Token().Fence() || d.Remaining <= 0 || len(d.Line) != 2 {
		t.Errorf("described: %+v", d)
	}
	for i, id := range ids {
		if ahead, waits := d.Position(id); ahead != i || !waits || !d.Line[i].Alive || d.Line[i].Owner != "waiter" {
			t.Errorf("place %d: %d ahead, waits %v, %+v", i, ahead, waits, d.Line[i])
		}
	}
	if d.EstimatedWait(1) != 2*d.MeanHold || d.MeanHold <= 0 {
		t.Errorf("estimated wait %v, mean hold %v", d.EstimatedWait(1), d.MeanHold)
	}
	release(t, held)
	for _, w := range waiting {
		release(t, (<-w).lease)
	}
}

// TestAnOperatorBreaksALease_O5: one exact lease, with a reason, on record; the fence moves forward and
// the first in line is served.
func TestAnOperatorBreaksALease_O5(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder := newClient(t, pool, pglease.Config{TTL: 2 * time.Second, RenewEvery: 100 * time.Millisecond})
	waiter, operator := newClient(t, pool, pglease.Config{}), newClient(t, pool, pglease.Config{})
	held := acquire(t, holder, "r")
	waiting := waitFor(t.Context(), waiter, "r")
	inLine(t, pool, "r", 1)
	seen, err := operator.Describe(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{"", "a\x00b", string(make([]byte, pglease.MaxReasonLength+1))} {
		if err := operator.Break(t.Context(), seen, "ada", reason); !errors.Is(err, pglease.ErrInvalidConfig) {
			t.Errorf("Break for the reason %.10q: %v", reason, err)
		}
	}
	if err := operator.Break(t.Context(), seen, "ada", "the host is on fire"); err != nil {
		t.Fatal(err)
	}
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	if order, err := held.Token().Compare(next.lease.Token()); err != nil || order >= 0 {
		t.Errorf("fences %d, %d", held.Token().Fence(), next.lease.Token().Fence())
	}
	<-held.Done()
	var lost *pglease.LostError
	if err := held.Err(); !errors.As(err, &lost) || !errors.Is(err, pglease.ErrBroken) || lost.By != "ada" || lost.Reason != "the host is on fire" {
		t.Errorf("the holder learns: %v", err)
	}
	if err := operator.Break(t.Context(), seen, "ada", "again"); !errors.Is(err, pglease.ErrNotHeld) {
		t.Errorf("the same Break again: %v", err)
	}
	wantState(t, next.lease, pglease.Held)
	release(t, next.lease)
}
