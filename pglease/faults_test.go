package pglease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// statement matches the generated statement of that name on the wire.
func statement(name string) func(string) bool {
	return func(sql string) bool { return strings.Contains(sql, "-- name: "+name+" ") }
}

// joins tells the statements that take a place in line.
func joins(sql string) bool { return statement("Join")(sql) || statement("JoinHeld")(sql) }

// faulty returns a client whose connections can be tampered with, and an honest pool beside it.
func faulty(t *testing.T, config pglease.Config) (*pglease.Client, *pgleasetest.Faults, *pgxpool.Pool) {
	t.Helper()
	url := pgleasetest.URL(t)
	honest, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(honest.Close)
	faults := pgleasetest.NewFaults()
	client := newClient(t, faults.Pool(t, url), config)
	return client, faults, honest
}

func TestALostReplyToAnAcquireIsResolved_U1(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"Acquire": 0, "AcquireFree": 1} { // the tenures before
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, faults, pool := faulty(t, pglease.Config{})
			for range before {
				release(t, acquire(t, client, "r"))
			}
			lost := faults.LoseNextReply(statement(name))
			lease := acquire(t, client, "r")
			<-lost.Done()
			if r := readRow(t, pool, "r"); !r.current || r.fence != lease.Token().Fence() || r.lease != lease.Token().LeaseID().String() {
				t.Errorf("handle %v, row %+v", lease.Token(), r)
			}
			release(t, lease)
			var grants int
			if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pglease.lease_history").Scan(&grants); err != nil || grants != before+1 {
				t.Errorf("%d grants, %v; want one increment only", grants-before, err)
			}
		})
	}
}

func TestARequestIDSurvivesALostReply_U1(t *testing.T) {
	t.Parallel()
	client, faults, pool := faulty(t, pglease.Config{})
	id := pglease.WithRequestID(pglease.NewRequestID())
	ctx, cancel := context.WithCancel(t.Context())
	lost := faults.LoseNextReply(statement("Acquire"))
	go func() {
		<-lost.Done()
		cancel()
	}()
	first, err := client.TryAcquire(ctx, "r", id)
	if err != nil && !errors.Is(err, pglease.ErrUnknownOutcome) {
		t.Fatalf("TryAcquire: %v", err)
	}
	committed := readRow(t, pool, "r")
	again := acquire(t, client, "r", id)
	if again.Token().LeaseID().String() != committed.lease || again.Token().Fence() != committed.fence {
		t.Errorf("row %+v, then token %v", committed, again.Token())
	}
	if first != nil && first != again {
		t.Error("two handles")
	}
}

func TestALostReplyToARenewalCostsNothing_U2(t *testing.T) {
	t.Parallel()
	renewals := make(chan pglease.Event, 100)
	client, faults, pool := faulty(t, pglease.Config{
		TTL: 10 * time.Second, RenewEvery: time.Second,
		Observer: pglease.ObserverFunc(func(e pglease.Event) {
			if e.Kind == pglease.EventRenewed || e.Kind == pglease.EventRenewError {
				renewals <- e
			}
		}),
	})
	lost := faults.LoseNextReply(statement("Renew"))
	lease := acquire(t, client, "r")
	before := readRow(t, pool, "r")
	<-lost.Done()
	if e := <-renewals; e.Kind != pglease.EventRenewError {
		t.Errorf("the first renewal: %+v", e)
	}
	if e := <-renewals; e.Kind != pglease.EventRenewed {
		t.Errorf("the second renewal: %+v", e)
	}
	wantState(t, lease, pglease.Held)
	if after := readRow(t, pool, "r"); after.lease != before.lease || after.fence != before.fence {
		t.Errorf("row %+v became %+v", before, after)
	}
}

func TestReleaseAfterALostReply_U3(t *testing.T) {
	t.Parallel()
	client, faults, pool := faulty(t, pglease.Config{})
	lease := acquire(t, client, "r")
	faults.LoseNextReply(statement("ReleaseUnawaited"))
	if err := lease.Release(t.Context()); err == nil || errors.Is(err, pglease.ErrLost) {
		t.Errorf("Release with a lost reply: %v, want an open outcome", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("Release again: %v", err)
	}
	wantState(t, lease, pglease.Released)
	if r := readRow(t, pool, "r"); r.current {
		t.Error("the row is held")
	}
}

func TestReleaseWithAnEndedContextOnAServer_U3(t *testing.T) {
	t.Parallel()
	client, _, pool := faulty(t, pglease.Config{})
	lease := acquire(t, client, "r")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lease.Release(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Release with an ended context: %v", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("Release again: %v", err)
	}
	if r := readRow(t, pool, "r"); r.current {
		t.Error("the row is held")
	}
}

// TestRenewalAfterATakeover_I1: A's renewals fail, B takes the expired resource, A's come through
// again.
func TestRenewalAfterATakeover_I1(t *testing.T) {
	t.Parallel()
	a, faults, pool := faulty(t, pglease.Config{TTL: 2 * time.Second, RenewEvery: 200 * time.Millisecond, RequestTimeout: 100 * time.Millisecond})
	b := newClient(t, pool, pglease.Config{})
	stale := acquire(t, a, "r")
	faults.Freeze()
	pgleasetest.ExpireLease(t, pool, "r")
	next := acquire(t, b, "r")
	before := readRow(t, pool, "r")
	faults.Unfreeze()
	<-stale.Done()
	if err := stale.Err(); !errors.Is(err, pglease.ErrLost) {
		t.Errorf("A: %v", err)
	}
	after := readRow(t, pool, "r")
	if !after.current || after.fence != next.Token().Fence() || after.remaining > before.remaining {
		t.Errorf("B's row %+v became %+v", before, after)
	}
}

// TestLossIsToldBeforeTheDatabaseExpiresTheLease_L1: all packets vanish, nothing is reset. Fifty
// leases, of clients that were cut off at different moments of their renewals.
func TestLossIsToldBeforeTheDatabaseExpiresTheLease_L1(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var runs sync.WaitGroup
	for i := range 5 {
		faults := pgleasetest.NewFaults()
		client := newClient(t, faults.Pool(t, url), pglease.Config{TTL: 2 * time.Second, RenewEvery: 100 * time.Millisecond})
		runs.Go(func() {
			var leases []*pglease.Lease
			for j := range 10 {
				leases = append(leases, acquire(t, client, fmt.Sprint(i, ".", j)))
			}
			faults.Freeze()
			defer faults.Unfreeze()
			for _, l := range leases {
				wantTrustInside(t, l, pool)
			}
			for _, l := range leases {
				<-l.Done()
				if err := l.Err(); !errors.Is(err, pglease.ErrUnreachable) && !errors.Is(err, pglease.ErrExpired) {
					t.Errorf("Err: %v", err)
				}
			}
		})
	}
	runs.Wait()
}
