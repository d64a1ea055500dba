//go:build unix

package sequences_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/torture/failover/servers"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// TestSequence09_LeaderFailsAroundCommits: the primary that grants and renews is killed with SIGKILL, and
// its standby is promoted. The clients find it by themselves. The reports are elsewhere and survive.
func TestSequence09_LeaderFailsAroundCommits(t *testing.T) {
	t.Parallel()
	t.Run("the standby has the commits", leaderFailsAfterReplicating)
	t.Run("the standby lacks the commits", leaderFailsBeforeReplicating)
}

// An era is a stage whose authority is a pair of servers.
type era struct {
	*stage
	*servers.Pair
	pool   *pgxpool.Pool
	faults *pgleasetest.Faults
	failed chan struct{} // closed when the standby has taken over
}

func newEra(t *testing.T) *era {
	t.Helper()
	pair := servers.NewPair(t)
	s := stageOn(t, pair.URL, pgleasetest.URL(t, migrations.Report))
	return &era{stage: s, Pair: pair, failed: make(chan struct{})}
}

// fail has the standby take over, and lets go on what was kept back until then.
func (e *era) fail(t *testing.T) {
	t.Helper()
	e.Fail(t)
	e.leases.Reset()
	close(e.failed)
}

// client returns one of its own network, and the stage as seen with another report.
func (e *era) client(t *testing.T, report string) (own *era, c *pglease.Client) {
	t.Helper()
	clone, s := *e, *e.stage
	clone.stage, s.report = &s, july+"/"+report
	clone.pool, clone.faults = s.tampered(t)
	return &clone, newClient(t, clone.pool, pglease.Config{TTL: time.Minute, RenewEvery: 200 * time.Millisecond, RequestTimeout: 30 * time.Second})
}

// loseReply loses the reply to the next statement of the name, and keeps those after it back until the
// standby has taken over. It returns the moment at which the server has answered.
func (e *era) loseReply(name string) (answered <-chan struct{}) {
	lost := e.faults.LoseNextReply(isStatement(name))
	e.faults.BeforeStatement(func(sql string) {
		if !isStatement(name)(sql) {
			return
		}
		select {
		case <-lost.Done():
			<-e.failed
		default:
		}
	})
	return lost.Done()
}

// keepBack keeps the next statement of the name back until the standby has taken over.
func (e *era) keepBack(name string) (arrived <-chan struct{}) {
	at := make(chan struct{})
	var once sync.Once
	e.faults.BeforeStatement(func(sql string) {
		if isStatement(name)(sql) {
			once.Do(func() {
				close(at)
				<-e.failed
			})
		}
	})
	return at
}

// acquire asks under one request id until the answer is known.
func (e *era) acquire(t *testing.T, c *pglease.Client) <-chan *pglease.Lease {
	t.Helper()
	granted := make(chan *pglease.Lease, 1)
	q := pglease.WithRequestID(pglease.NewRequestID())
	go func() {
		for t.Context().Err() == nil {
			lease, err := c.TryAcquire(t.Context(), e.report, q)
			if err == nil {
				granted <- lease
				return
			}
			if errors.Is(err, pglease.ErrHeld) || errors.Is(err, pglease.ErrRequestSpent) {
				t.Errorf("TryAcquire: %v", err)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		close(granted)
	}()
	return granted
}

// succeed has a later owner publish after the first, which then is refused.
func (e *era) succeed(t *testing.T, first fence.Token, had ...accepted) {
	t.Helper()
	second := e.take(t, newClient(t, e.leases, pglease.Config{}))
	grows(t, first, second.Token())
	e.publishStale(t, first, "late")
	e.publish(t, second.Token(), "the next owner's", int64(len(had)+1))
	e.wantHistory(t, append(had, accepted{second.Token(), "the next owner's"})...)
	e.wantRefused(t, first)
}

// The first failure:
//
//	   client of a        client of b         client of c        primary            standby
//	1                     granted, publishes                     b: f               b: f
//	2  acquires                                                  commits a: f       a: f
//	3  (reply lost)       renews                                 extends b          extends b
//	4                     (reply lost)        is about to acquire
//	5                                                            SIGKILL
//	6                                                                               promoted: next generation
//	7  asks again: f      renews: f, Held     granted f2                            c: f2
//	8  publishes          publishes           publishes
//	9  each is succeeded by an owner with a greater fence, and refused after that
func leaderFailsAfterReplicating(t *testing.T) {
	t.Parallel()
	e := newEra(t)
	a, asking := e.client(t, "a")
	b, renewing := e.client(t, "b")
	c, late := e.client(t, "c")
	held := b.take(t, renewing)
	b.publish(t, held.Token(), "before", 1)

	acquired := a.loseReply("Acquire")
	granted := a.acquire(t, asking)
	<-acquired
	committed := a.row(t)
	<-b.loseReply("Renew")
	aboutTo := c.keepBack("Acquire")
	lateGrant := c.acquire(t, late)
	<-aboutTo
	e.Replicated(t)
	e.fail(t)

	first := <-granted
	if first.Token().Fence() != committed.fence || first.Token().LeaseID().String() != committed.leaseID {
		t.Errorf("asked again: %v, and %+v was committed", first.Token(), committed)
	}
	a.publish(t, first.Token(), "a's", 1)
	b.untilRenewed(t)
	b.heldBy(t, held.Token())
	if held.State() != pglease.Held {
		t.Errorf("the lease of b is %v: %v", held.State(), held.Err())
	}
	b.publish(t, held.Token(), "after", 2)
	third := <-lateGrant
	if before, now := generation(first.Token()), generation(third.Token()); now != before+1 {
		t.Errorf("generation %d, then %d", before, now)
	}
	c.publish(t, third.Token(), "c's", 1)
	for _, l := range []*pglease.Lease{first, held, third} {
		release(t, l)
	}
	a.succeed(t, first.Token(), accepted{first.Token(), "a's"})
	b.succeed(t, held.Token(), accepted{held.Token(), "before"}, accepted{held.Token(), "after"})
	c.succeed(t, third.Token(), accepted{third.Token(), "c's"})
}

func generation(t fence.Token) int64 { return t.Fence() >> 41 }

// untilRenewed returns when the authority's expiry has moved on.
func (e *era) untilRenewed(t *testing.T) {
	t.Helper()
	for before := e.row(t); !e.row(t).expires.After(before.expires); {
		time.Sleep(5 * time.Millisecond)
	}
}

// The second failure:
//
//	   client of a        client of b           client of c            primary       standby      reports
//	1                     granted f                                    b: f          b: f
//	2                                                                  sends the standby nothing any more
//	3  granted f1                               acquires               a: f1, c: f1
//	4  publishes          renews                (reply lost)           extends b                  a: version 1, f1
//	5                                                                  SIGKILL
//	6                                                                                promoted
//	7  trusts f1 still    renews: f, Held       asks again: f2 > f1                  c: f2
//	8  a's next owner: f2 > f1                                                       a: f2        a: version 2, f2
//	9  publishes under f1                                                                         refused
//	10 Lost: the authority has no such lease
func leaderFailsBeforeReplicating(t *testing.T) {
	t.Parallel()
	e := newEra(t)
	a, first := e.client(t, "a")
	b, renewing := e.client(t, "b")
	c, asking := e.client(t, "c")
	held := b.take(t, renewing)
	e.Replicated(t)
	e.CutOff(t)

	owned := a.take(t, first)
	a.publish(t, owned.Token(), "a's", 1)
	b.untilRenewed(t)
	b.publish(t, held.Token(), "before", 1)
	acquired := c.loseReply("Acquire")
	granted := c.acquire(t, asking)
	<-acquired
	lost := c.row(t)
	e.fail(t)

	a.lost = owned.Token()
	a.succeed(t, owned.Token(), accepted{owned.Token(), "a's"})
	<-owned.Done()
	if err := owned.Err(); !errors.Is(err, pglease.ErrLost) {
		t.Errorf("a lease that the authority does not have: %v", err)
	}
	b.untilRenewed(t)
	b.heldBy(t, held.Token())
	b.publish(t, held.Token(), "after", 2)
	release(t, held)
	b.succeed(t, held.Token(), accepted{held.Token(), "before"}, accepted{held.Token(), "after"})
	again := <-granted
	if again.Token().Fence() <= lost.fence || again.Token().LeaseID().String() == lost.leaseID {
		t.Errorf("asked again: %v, after %+v was lost", again.Token(), lost)
	}
	c.publish(t, again.Token(), "c's", 1)
	release(t, again)
	c.succeed(t, again.Token(), accepted{again.Token(), "c's"})
}
