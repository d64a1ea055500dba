//go:build unix

package sequences_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// TestSequence01_PauseBetweenReadAndWrite: W1 is stopped after it has read and before it writes. The
// first time its lease outlives the pause, the second time it does not, and nobody else comes. Here the
// report is in the database of the leases.
//
//	   W1, a process                      lease                   report
//	1  acquires f, reads version 1        held                    version 1 of another owner
//	2  SIGSTOP                            nothing renews it
//	3  SIGCONT, writes at once            held                    version 2 under f
//	4  SIGSTOP
//	5                                     expires
//	6  SIGCONT, still trusts its lease
//	7  writes within a guarded tx         over: W1 is told        version 2 stays
//	8  writes under its fence alone                               version 3 under f: nobody came since
func TestSequence01_PauseBetweenReadAndWrite(t *testing.T) {
	t.Parallel()
	both := pgleasetest.URL(t, migrations.Report)
	s := stageOn(t, both, both)
	before := s.firstVersion(t)
	const renewEvery = 100 * time.Millisecond
	w1 := s.start(t, role{Name: "W1", TTL: time.Minute, RenewEvery: renewEvery})
	own := parse(t, w1.does(t, command{Do: "acquire"}, outcomeOK).Token)
	if found := w1.does(t, command{Do: "read"}, outcomeOK); found.Version != 1 || found.Body != "before" {
		t.Errorf("W1 read %+v", found)
	}

	w1.freeze(t)
	w1.tell(t, command{Do: "publish", Body: "after a short pause", Expected: 1})
	s.unrenewedFor(t, 10*renewEvery)
	w1.thaw(t)
	if said := w1.hear(t); said.Outcome != outcomeOK || said.State != pglease.Held.String() || said.Version != 2 {
		t.Errorf("after a pause shorter than the lease: %+v", said)
	}

	w1.freeze(t)
	pgleasetest.ExpireLease(t, s.leases, july)
	w1.tell(t, command{Do: "publish guarded", Body: "guarded", Expected: 2})
	w1.thaw(t)
	if said := w1.hear(t); said.Outcome != outcomeLost {
		t.Errorf("a guarded write after the lease had expired: %+v", said)
	}
	s.wantHistory(t, accepted{before, "before"}, accepted{own, "after a short pause"})
	w1.does(t, command{Do: "publish", Body: "by its fence alone", Expected: 2}, outcomeOK)
	s.wantHistory(t, accepted{before, "before"}, accepted{own, "after a short pause"}, accepted{own, "by its fence alone"})
	s.wantRefused(t)
}

// firstVersion has somebody publish version 1 and leave.
func (s *stage) firstVersion(t *testing.T) fence.Token {
	t.Helper()
	lease := s.take(t, newClient(t, s.leases, pglease.Config{Owner: "W0"}))
	s.publish(t, lease.Token(), "before", 1)
	release(t, lease)
	return lease.Token()
}

// unrenewedFor returns when the lease's expiry has not moved for so long, by the database's clock. One
// renewal may have been on its way when its process was stopped.
func (s *stage) unrenewedFor(t *testing.T, d time.Duration) {
	t.Helper()
	since := s.row(t)
	for moved := 0; ; {
		now := s.row(t)
		if now.now.Sub(since.now) > d {
			return
		}
		if !now.expires.Equal(since.expires) {
			if since, moved = now, moved+1; moved > 1 {
				t.Fatal("a stopped process renews its lease")
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// A takeover is what sequences 2 and 3 share.
type takeover struct {
	*stage
	before fence.Token // of the owner that wrote version 1
	w1     *process    // stopped
	own    fence.Token // of W1
	second *pglease.Lease
}

// overtake plays sequence 2 but for its last line.
func overtake(t *testing.T) *takeover {
	t.Helper()
	s := newStage(t)
	k := &takeover{stage: s, before: s.firstVersion(t)}
	k.w1 = s.start(t, role{Name: "W1", TTL: 2 * time.Second})
	k.own = parse(t, k.w1.does(t, command{Do: "acquire"}, outcomeOK).Token)
	k.w1.does(t, command{Do: "read"}, outcomeOK)
	k.w1.freeze(t)
	k.second = s.take(t, newClient(t, s.leases, pglease.Config{Owner: "W2"}))
	return k
}

// expired is when W1's tenure ended, and whether by expiry.
func expired(t *testing.T, pool *pgxpool.Pool, own fence.Token) (at time.Time, how string) {
	t.Helper()
	err := pool.QueryRow(t.Context(), "SELECT ended_at, ended FROM pglease.lease_history WHERE resource_id = $1 AND fence = $2",
		own.Resource(), own.Fence()).Scan(&at, &how)
	if err != nil {
		t.Fatal(err)
	}
	return at, how
}

// TestSequence02_ExpiryLetsTheNextOwnerPublish: nothing but time ends W1's lease.
//
//	   W1, a process                W2                       lease            report
//	1  acquires f1, reads                                    W1's             version 1
//	2  SIGSTOP
//	3                               waits in line            W1's
//	4                                                        expires
//	5                               granted f2, establishes  W2's             watermark f2
//	6  (stopped)                    reads, publishes                          version 2 under f2
func TestSequence02_ExpiryLetsTheNextOwnerPublish(t *testing.T) {
	t.Parallel()
	k := overtake(t)
	grows(t, k.own, k.second.Token())
	at, how := expired(t, k.leases, k.own)
	if granted := k.row(t).acquired; how != "expired" || granted.Before(at) {
		t.Errorf("W1's lease %s at %v, W2 was granted at %v", how, at, granted)
	}
	k.publish(t, k.second.Token(), "W2's", 2)
	k.heldBy(t, k.second.Token())
	k.wantHistory(t, accepted{k.before, "before"}, accepted{k.second.Token(), "W2's"})
	if v := k.soundHistory(t)[1]; v.PublishedAt.Before(at) {
		t.Errorf("published at %v, before W1's lease ended at %v", v.PublishedAt, at)
	}
	k.wantRefused(t)
}

// TestSequence03_TheResumedOwnerIsRefused: the first thing that W1 does is its write.
//
//	   W1, a process                     W2             report
//	1  as in sequence 2, 1 to 6                         version 2 under f2
//	2  SIGCONT, publishes under f1                      refused: f1 < f2, and noted
//	3  asks its lease: Lost
//	4  releases: told of the loss        still held
//	5                                    publishes      version 3 under f2
//	6  waits in line                     releases
//	7  granted f3, reads, publishes                     version 4 under f3
func TestSequence03_TheResumedOwnerIsRefused(t *testing.T) {
	t.Parallel()
	k := overtake(t)
	k.publish(t, k.second.Token(), "W2's", 2)
	k.w1.tell(t, command{Do: "publish", Body: "W1's, late", Expected: 1})
	k.w1.thaw(t)
	if said := k.w1.hear(t); said.Outcome != outcomeStale {
		t.Errorf("W1's write: %+v", said)
	}
	if said := k.w1.does(t, command{Do: "look"}, outcomeOK); said.State != pglease.Lost.String() {
		t.Errorf("W1's lease is %s", said.State)
	}
	k.wantHistory(t, accepted{k.before, "before"}, accepted{k.second.Token(), "W2's"})
	k.w1.does(t, command{Do: "release"}, outcomeLost)
	k.heldBy(t, k.second.Token())
	k.publish(t, k.second.Token(), "W2's again", 3)

	k.w1.tell(t, command{Do: "acquire"})
	k.inLine(t, 1)
	release(t, k.second)
	third := parse(t, k.w1.hear(t).Token)
	grows(t, k.second.Token(), third)
	if found := k.w1.does(t, command{Do: "read"}, outcomeOK); found.Body != "W2's again" {
		t.Errorf("W1 read %+v", found)
	}
	k.w1.does(t, command{Do: "publish", Body: "W1's, in its turn", Expected: 3}, outcomeOK)
	k.wantHistory(t, accepted{k.before, "before"}, accepted{k.second.Token(), "W2's"},
		accepted{k.second.Token(), "W2's again"}, accepted{third, "W1's, in its turn"})
	k.wantRefused(t, k.own)
}
