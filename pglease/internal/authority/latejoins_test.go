package authority_test

import (
	"testing"
	"time"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
	"github.com/pglease/pglease/pglease/internal/mint"
)

// Joins that have waited for the row while their request was given up or granted elsewhere. Their snapshot is
// older than that, so they take a place; it must never be served.

// joinBehind sends a join that waits for whoever holds the row.
func (b bench) joinBehind(resource string, request byte) (joined <-chan authority.Outcome) {
	b.Helper()
	done := make(chan authority.Outcome, 1)
	go func() {
		answer, err := b.Join(b.Context(), joinOf(authority.Request{Resource: resource, ID: authority.ID{0: request}, Owner: "w", TTL: ttl, Fresh: true}))
		if err != nil {
			b.Error(err)
		}
		done <- answer.Outcome
	}()
	b.awaitLocked(1)
	return done
}

// awaitLocked returns when n sessions wait for a lock.
func (b bench) awaitLocked(n int) {
	b.Helper()
	for waiting := 0; waiting < n; {
		b.query("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'", nil, &waiting)
	}
}

// servesNobody releases and sees that the line holds nobody any more, and that it is counted right.
func (b bench) servesNobody(resource string) {
	b.Helper()
	var lease [16]byte
	var fenced int64
	b.query("SELECT lease_id, fence FROM pglease.resource_lease WHERE resource_id = $1", []any{resource}, &lease, &fenced)
	held := authority.ReleaseRequest{Lease: mint.Token(resource, fenced, lease).(fence.Token), Client: authority.ID{0: 9}}
	end, next, err := b.Release(b.Context(), held)
	if err != nil || end.Ended != authority.EndReleased || next.Ticket != 0 {
		b.Errorf("released as %+v, and then served: %+v, %v", end, next, err)
	}
	var waiting, places int
	b.query("SELECT waiting, (SELECT count(*) FROM pglease.lease_waiter) FROM pglease.resource_lease", nil, &waiting, &places)
	if waiting != 0 || places != 0 {
		b.Errorf("%d are counted, %d wait", waiting, places)
	}
}

func (b bench) aliveInLine(resource string) {
	b.Helper()
	b.granted(resource, 1)
	b.fresh(resource, 2) // so that it is known to be held
	if err := b.Beat(b.Context(), authority.ID{0: 1}, authority.Session{}, time.Minute); err != nil {
		b.Fatal(err)
	}
}

// Both wait for the row, the join first: who gives the request up does not see its place.
func TestAPlaceTakenAsItsRequestIsGivenUpIsNotServed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.aliveInLine("r")
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM pglease.resource_lease FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	joined := b.joinBehind("r", 3)
	abandoned := make(chan error, 1)
	go func() {
		_, err := b.Abandon(t.Context(), "r", authority.ID{0: 3})
		abandoned <- err
	}()
	b.awaitLocked(2)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-abandoned; err != nil {
		t.Fatal(err)
	}
	if got := <-joined; got != authority.Joined && got != authority.Spent {
		t.Errorf("answered %q", got)
	}
	b.servesNobody("r")
}

// The join's session is slower than all that comes after it, until the request's lease is over.
func TestAPlaceTakenAfterItsRequestWasGrantedIsNotServed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.aliveInLine("r")
	c, err := b.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	run := func(sql string) {
		t.Helper()
		if _, err := c.Conn().PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
	run("BEGIN; UPDATE pglease.resource_lease SET waiting = waiting")
	joined := b.joinBehind("r", 3)
	run(`UPDATE pglease.resource_lease SET lease_id = gen_random_uuid(), fence = fence + 1, request_id = gen_random_uuid();
		INSERT INTO pglease.lease_history (resource_id, owner_id, request_id, ended_at, ended)
		VALUES ('r', 'w', '03000000-0000-0000-0000-000000000000', clock_timestamp(), 'released');
		COMMIT`)
	if got := <-joined; got != authority.Joined && got != authority.Spent {
		t.Errorf("answered %q", got)
	}
	b.servesNobody("r")
}

// A request that has a place is asked for anew, in a transaction that pins the isolation level.
func TestAPlaceIsTakenOnceWhereTheIsolationIsPinned(t *testing.T) {
	t.Parallel()
	b := newBench(t).like(map[string]string{"default_transaction_isolation": "serializable"})
	b.aliveInLine("r")
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "UPDATE pglease.resource_lease SET waiting = waiting"); err != nil {
		t.Fatal(err)
	}
	joined := b.joinBehind("r", 3) // its conflict pins the level
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-joined; got != authority.Joined {
		t.Fatalf("answered %q", got)
	}
	if again := b.join("r", 3, true); again.Outcome != authority.Joined || again.Ticket == 0 {
		t.Errorf("answered %+v", again)
	}
	var waiting, places int
	b.query("SELECT waiting, (SELECT count(*) FROM pglease.lease_waiter) FROM pglease.resource_lease", nil, &waiting, &places)
	if waiting != 1 || places != 1 {
		t.Errorf("%d are counted, %d wait", waiting, places)
	}
}
