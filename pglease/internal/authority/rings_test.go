package authority_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/internal/authority"
)

// waits puts a request of a client that lives into line, and returns the id of the lease that it will get.
func (b bench) waits(resource string, request byte, client authority.ID) (lease authority.ID) {
	b.Helper()
	return b.waitsFor(ttl, resource, request, client)
}

// waitsFor is waits for a lease of a TTL.
func (b bench) waitsFor(ttl time.Duration, resource string, request byte, client authority.ID) (lease authority.ID) {
	b.Helper()
	lease = authority.ID{0: request, 15: 1}
	answer, err := b.Join(b.Context(), authority.JoinRequest{
		Request: authority.Request{Resource: resource, ID: authority.ID{0: request}, Owner: "next", TTL: ttl},
		Client:  client, Lease: lease, MaxWaiting: 10,
	})
	if err != nil || answer.Outcome != authority.Joined {
		b.Fatal(answer, err)
	}
	if err := b.Beat(b.Context(), client, authority.Session{}, time.Minute); err != nil {
		b.Fatal(err)
	}
	return lease
}

// TestAReleaseRingsBehindItsCommit: the waiter hears of its lease without having asked, and who rings
// is told that it was. A client's own waiters are not rung.
func TestAReleaseRingsBehindItsCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	client := authority.ID{0: 1}
	ears, err := b.Listen(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	defer ears.Close(t.Context())
	held := b.granted("r", 2)
	b.waits("r", 3, client)
	own := b.waits("r", 4, client)
	_, next, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: client})
	if err != nil || next.Rung || next.Token.IsZero() {
		t.Fatalf("to a waiter of its own: %+v, %v", next, err)
	}
	_, next, err = b.Release(t.Context(), authority.ReleaseRequest{Lease: next.Token, Client: authority.ID{0: 9}})
	if err != nil || !next.Rung || next.Token.LeaseID() != own {
		t.Fatalf("to a waiter of another: %+v, %v", next, err)
	}
	ring, err := ears.Next(t.Context())
	if err != nil || ring != authority.RingOf(next, 0) || ring.Fence != next.Token.Fence() || ring.Proof != authority.Prove(own) {
		t.Errorf("heard %+v, %v; was told of %+v", ring, err, next)
	}
	// The next ring is one that the caller sends: nothing was sent for the first release, and nothing twice.
	if err := b.Ring(t.Context(), client, authority.Ring{Ticket: 99}); err != nil {
		t.Fatal(err)
	}
	if ring, err := ears.Next(t.Context()); err != nil || ring != (authority.Ring{Ticket: 99}) {
		t.Errorf("heard %+v, %v", ring, err)
	}
}

// TestASlowCommitProvesNothing: the waiter may have looked between its grant and the end of the grant's commit, and
// would count the lease from then. So it is told to look where that took much of the TTL.
func TestASlowCommitProvesNothing(t *testing.T) {
	t.Parallel()
	b := ownServer(t)
	slow := b.pool.Config()
	slow.ConnConfig.RuntimeParams["commit_delay"] = "100000" // us, the longest that there is
	slow.ConnConfig.RuntimeParams["commit_siblings"] = "0"
	pool, err := pgxpool.NewWithConfig(t.Context(), slow)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	slowly := benchOn(t, pool)
	client := authority.ID{0: 1}
	ears, err := b.Listen(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	defer ears.Close(t.Context())
	for i, c := range []struct {
		ttl    time.Duration
		proven bool
	}{{200 * time.Millisecond, false}, {time.Hour, true}} {
		resource, request := strconv.Itoa(i), byte(10*i)
		held := b.granted(resource, request+1)
		b.waitsFor(c.ttl, resource, request+2, client)
		_, next, err := slowly.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: authority.ID{0: 9}})
		if err != nil || !next.Rung || next.Token.IsZero() {
			t.Fatalf("%+v, %v", next, err)
		}
		ring, err := ears.Next(t.Context())
		if err != nil || ring.Ticket != next.Ticket || (ring.Fence > 0) != c.proven {
			t.Errorf("of a lease for %v, heard %+v, %v", c.ttl, ring, err)
		}
	}
}

// TestARingProvesWhatWasQuick: who rings for itself measures how long the grant took by its own clock.
func TestARingProvesWhatWasQuick(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held := b.granted("r", 1)
	lease := b.waits("r", 2, authority.ID{0: 1})
	_, next, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: authority.ID{0: 9}})
	if err != nil {
		t.Fatal(err)
	}
	if ring := authority.RingOf(next, ttl/5); ring.Fence != next.Token.Fence() || ring.Proof != authority.Prove(lease) {
		t.Errorf("a quick grant: %+v", ring)
	}
	if ring := authority.RingOf(next, ttl/3); ring != (authority.Ring{Ticket: next.Ticket}) {
		t.Errorf("a slow grant: %+v", ring)
	}
}
