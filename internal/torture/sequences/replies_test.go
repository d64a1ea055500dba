package sequences_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// tampered returns a pool to the database of the leases whose network can be tampered with. Each
// statement travels whole: none has to be prepared first.
func (s *stage) tampered(t *testing.T) (*pgxpool.Pool, *pgleasetest.Faults) {
	t.Helper()
	faults := pgleasetest.NewFaults()
	pool := faults.Pool(t, s.leasesURL+"&default_query_exec_mode=exec")
	return pool, faults
}

// TestSequence04_LostAcquireReply: W1's acquire commits and its reply is lost. It asks again with the
// same request id: as the same process, and as one that was restarted.
//
//	   W1                                authority                     report
//	1  acquire, request q                commits: f, q
//	2  (reply lost)
//	3  its call ends: outcome unknown
//	4  acquire, request q                the same lease: f
//	5  publishes under f                                               version 1 under f
//	6  restarted: acquire, request q     the same lease: f
//	7  publishes under f                                               version 2 under f
//	8  releases                          ends f
//	9  acquire, request q                spent: never granted again
//	10 acquire, request p                f2 > f
//	11 publishes under f, then f2                                      refused; version 3 under f2
func TestSequence04_LostAcquireReply(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	pool, faults := s.tampered(t)
	w1 := newClient(t, pool, pglease.Config{Owner: "W1"})
	q := pglease.WithRequestID(pglease.NewRequestID())

	s.loseAcquireReply(t, w1, faults, q)
	committed := s.row(t)
	first := s.take(t, w1, q)
	if first.Token().Fence() != committed.fence || first.Token().LeaseID().String() != committed.leaseID {
		t.Errorf("asked again: %v, and %+v was committed", first.Token(), committed)
	}
	s.publish(t, first.Token(), "after the lost reply", 1)

	restarted := newClient(t, s.leases, pglease.Config{Owner: "W1"})
	again := s.take(t, restarted, q)
	if again.Token() != first.Token() {
		t.Errorf("after a restart: %v, before it: %v", again.Token(), first.Token())
	}
	s.publish(t, again.Token(), "after the restart", 2)
	release(t, again)
	if _, err := restarted.TryAcquire(t.Context(), s.report, q); !errors.Is(err, pglease.ErrRequestSpent) {
		t.Errorf("the request again, after its lease: %v", err)
	}
	if grants := s.grants(t); len(grants) != 1 {
		t.Errorf("%d grants for one request: %v", len(grants), grants)
	}

	next := s.take(t, restarted)
	grows(t, first.Token(), next.Token())
	s.publishStale(t, first.Token(), "late")
	s.publish(t, next.Token(), "the next owner's", 3)
	s.wantHistory(t, accepted{first.Token(), "after the lost reply"}, accepted{first.Token(), "after the restart"},
		accepted{next.Token(), "the next owner's"})
	s.wantRefused(t, first.Token())
}

// loseAcquireReply has a call commit and end without its answer. The client itself would ask again at
// once, so its second statement is kept back until the call is over.
func (s *stage) loseAcquireReply(t *testing.T, c *pglease.Client, faults *pgleasetest.Faults, q pglease.AcquireOption) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sent atomic.Int64
	faults.BeforeStatement(func(sql string) {
		if isStatement("Acquire")(sql) && sent.Add(1) == 2 {
			cancel()
			<-ctx.Done()
		}
	})
	lost := faults.LoseNextReply(isStatement("Acquire"))
	_, err := c.TryAcquire(ctx, s.report, q)
	if !errors.Is(err, pglease.ErrUnknownOutcome) {
		t.Fatalf("TryAcquire whose reply was lost: %v", err)
	}
	<-lost.Done()
}

// TestSequence05_DelayedRelease: a release of W1's is on its way for so long that the report has been
// acquired again, by W2, or by W1 itself.
//
//	   W1                         network               authority       next owner        report
//	1  granted f1, publishes                            f1                                version 1
//	2  releases                   holds it back         f1
//	3                                                   expires
//	4                                                   f2              granted           watermark f2
//	5  is told of the loss        delivers the release  f2 stays
//	6                                                   f2              publishes         version 2 under f2
//	7  publishes under f1                                                                 refused
func TestSequence05_DelayedRelease(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"by another", "by the same owner"} {
		t.Run("acquired again "+next, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			pool, faults := s.tampered(t)
			w1 := newClient(t, pool, pglease.Config{Owner: "W1", RequestTimeout: 30 * time.Second})
			successor := newClient(t, s.leases, pglease.Config{Owner: map[string]string{"by another": "W2", "by the same owner": "W1"}[next]})
			first := s.take(t, w1)
			s.publish(t, first.Token(), "W1's", 1)

			faults.Freeze()
			released := make(chan error, 1)
			go func() { released <- first.Release(t.Context()) }()
			for first.State() != pglease.Releasing {
				time.Sleep(time.Millisecond)
			}
			pgleasetest.ExpireLease(t, s.leases, s.report)
			second := s.take(t, successor)
			grows(t, first.Token(), second.Token())

			faults.Unfreeze()
			if err := <-released; !errors.Is(err, pglease.ErrLost) {
				t.Errorf("the delayed release: %v", err)
			}
			s.heldBy(t, second.Token())
			s.publish(t, second.Token(), "the next owner's", 2)
			s.publishStale(t, first.Token(), "W1's, late")
			s.heldBy(t, second.Token())
			s.wantHistory(t, accepted{first.Token(), "W1's"}, accepted{second.Token(), "the next owner's"})
			s.wantRefused(t, first.Token())
		})
	}
}

// TestSequence06_LostRenewalReplies: W1's work goes on all the while.
//
//	   W1's keeper                        authority        W1's work          W2                report
//	1  acquires f1                        f1               publishes                            version 1, f1
//	2  renews, five replies are lost      extended, f1     publishes 5 times                    versions 2 to 6, f1
//	3  Held throughout, still f1
//	4  renews, every reply is lost        extended, f1
//	5  Suspect, then Lost by its clock
//	6                                     still f1         publishes                            version 7, f1
//	7                                     expires
//	8                                     f2                                  establishes       watermark f2
//	9                                                      publishes                            refused
//	10                                                                        publishes         version 8, f2
func TestSequence06_LostRenewalReplies(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	pool, faults := s.tampered(t)
	events := &journal{}
	w1 := newClient(t, pool, pglease.Config{Owner: "W1", TTL: 3 * time.Second, RenewEvery: 100 * time.Millisecond, Observer: events})
	first := s.take(t, w1)
	var want []accepted
	work := func() {
		body := fmt.Sprint("work ", len(want))
		s.publish(t, first.Token(), body, int64(len(want)+1))
		want = append(want, accepted{first.Token(), body})
	}
	work()

	for range 5 {
		before := s.row(t).expires
		lost := faults.LoseNextReply(isStatement("Renew"))
		<-lost.Done()
		if after := s.row(t).expires; !after.After(before) {
			t.Errorf("the renewal whose reply was lost moved the expiry from %v to %v", before, after)
		}
		work()
	}
	events.await(t, pglease.EventRenewError, 5) // the last may be told of after its reply was lost
	if state := first.State(); state.Over() {
		t.Fatalf("after %d renewals that failed the lease is %v", events.count(pglease.EventRenewError), state)
	}
	events.await(t, pglease.EventRenewed, events.count(pglease.EventRenewed)+1)
	s.heldBy(t, first.Token())

	for range 1000 { // more than there can be until trust runs out
		faults.LoseNextReply(isStatement("Renew"))
	}
	<-first.Done()
	if err := first.Err(); !errors.Is(err, pglease.ErrLost) || errors.Is(err, pglease.ErrTakenOver) {
		t.Errorf("the loss: %v", err)
	}
	s.heldBy(t, first.Token()) // the authority extended it each time, and W1 could not know
	work()

	second := s.take(t, newClient(t, s.leases, pglease.Config{Owner: "W2"}))
	grows(t, first.Token(), second.Token())
	s.publishStale(t, first.Token(), "work")
	s.publish(t, second.Token(), "W2's", 8)
	s.wantHistory(t, append(want, accepted{second.Token(), "W2's"})...)
	s.wantRefused(t, first.Token())
}
