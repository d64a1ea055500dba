package authority_test

import (
	"testing"
	"time"

	"github.com/pglease/pglease/pglease/internal/authority"
)

// join sends a request for a place in a line of at most two. It is fresh where it was never sent.
func (b bench) join(resource string, request byte, fresh bool) authority.Answer {
	b.Helper()
	return b.sendJoin(authority.Request{Resource: resource, ID: authority.ID{0: request}, Owner: "w", TTL: ttl, Fresh: fresh})
}

func (b bench) sendJoin(r authority.Request) authority.Answer {
	b.Helper()
	answer, err := b.Join(b.Context(), joinOf(r))
	if err != nil {
		b.Fatalf("Join: %v", err)
	}
	return answer
}

func joinOf(r authority.Request) authority.JoinRequest {
	return authority.JoinRequest{
		Request: r, Client: authority.ID{0: 1}, Lease: authority.ID{0: r.ID[0], 15: 1}, Patience: time.Hour, MaxWaiting: 2,
	}
}

// A join begins with the cheapest statement that is likely to settle it, and each that cannot does nothing.
func TestAJoinSendsTheCheapestThatMayDo(t *testing.T) {
	t.Parallel()
	const refused, asked = true, false // whether the client has seen the resource held
	free := "UPDATE pglease.resource_lease SET ended_at = clock_timestamp()"
	for name, c := range map[string]struct {
		seen bool
		then string // what happens to the resource before the join
		r    authority.Request
		want authority.Outcome
		sent string
	}{
		"held":              {refused, "", authority.Request{Fresh: true}, authority.Joined, "JoinHeld"},
		"held, not seen so": {asked, "", authority.Request{Fresh: true}, authority.Joined, "AcquireFree JoinHeld"},
		"free":              {asked, free, authority.Request{Fresh: true}, authority.Granted, "AcquireFree"},
		"free, seen held":   {refused, free, authority.Request{Fresh: true}, authority.Granted, "JoinHeld AcquireFree"},
		"expired": {
			refused, "UPDATE pglease.resource_lease SET expires_at = clock_timestamp()",
			authority.Request{Fresh: true},
			authority.Granted,
			"JoinHeld AcquireFree Join",
		},
		"a full line": {
			refused, "UPDATE pglease.resource_lease SET waiting = 2", authority.Request{Fresh: true}, authority.Full, "JoinHeld AcquireFree Join",
		},
		"no row":           {asked, "TRUNCATE pglease.resource_lease", authority.Request{Fresh: true}, authority.Held, "AcquireFree JoinHeld Join"},
		"sent before":      {refused, "", authority.Request{}, authority.Joined, "Join"},
		"barging":          {refused, "", authority.Request{Fresh: true, Barging: true}, authority.Joined, "Join"},
		"free with a line": {refused, free + ", waiting = 1", authority.Request{Fresh: true}, authority.Joined, "JoinHeld"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, statements := tracedBench(t)
			b.granted("r", 1)
			if c.seen {
				b.fresh("r", 2)
			}
			if c.then != "" {
				b.exec("ALTER TABLE pglease.resource_lease DISABLE TRIGGER USER")
				b.exec(c.then)
				b.exec("ALTER TABLE pglease.resource_lease ENABLE TRIGGER USER")
			}
			statements.take()
			c.r.Resource, c.r.ID, c.r.Owner, c.r.TTL = "r", authority.ID{0: 3}, "w", ttl
			answer := b.sendJoin(c.r)
			if got := statements.take(); answer.Outcome != c.want || got != c.sent {
				t.Errorf("answered %+v, want %q; sent %s", answer, c.want, got)
			}
			if c.want == authority.Joined && (answer.Ticket == 0 || (c.then == "" && (answer.Remaining <= 0 || answer.Remaining > ttl))) {
				t.Errorf("answered %+v", answer)
			}
		})
	}
}

// The line counts each place once, whatever is sent twice.
func TestAPlaceIsTakenOnce(t *testing.T) {
	t.Parallel()
	b, statements := tracedBench(t)
	b.granted("r", 1)
	b.fresh("r", 2)
	first, second := b.join("r", 3, true), b.join("r", 4, true)
	if first.Outcome != authority.Joined || first.Ahead != 0 || second.Ahead != 1 || second.Ticket <= first.Ticket {
		t.Fatalf("answered %+v, %+v", first, second)
	}
	b.exec("UPDATE pglease.resource_lease SET waiting = 1")
	b.exec("DELETE FROM pglease.lease_waiter WHERE ticket = $1", second.Ticket)
	statements.take()
	if again := b.join("r", 3, true); again.Outcome != authority.Joined || again.Ticket != first.Ticket { // as if it was not known to be sent
		t.Errorf("answered %+v, then %+v", first, again)
	}
	if got := statements.take(); got != "JoinHeld AcquireFree Join" {
		t.Errorf("sent %s", got)
	}
	var waiting, places int
	b.query("SELECT waiting, (SELECT count(*) FROM pglease.lease_waiter) FROM pglease.resource_lease", nil, &waiting, &places)
	if waiting != 1 || places != 1 {
		t.Errorf("%d are counted, %d wait", waiting, places)
	}
}

// A request that was given up is not let in by a packet of it that comes late.
func TestAnAbandonedRequestTakesNoPlace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.granted("r", 1)
	b.fresh("r", 2)
	if _, err := b.Leave(t.Context(), authority.Place{Resource: "r", Request: authority.ID{0: 3}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Abandon(t.Context(), "r", authority.ID{0: 4}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Leave(t.Context(), authority.Place{Resource: "r", Request: authority.ID{0: 5}}); err != nil {
		t.Fatal(err)
	}
	for _, request := range []byte{4, 5} {
		if answer := b.join("r", request, true); answer.Outcome != authority.Spent {
			t.Errorf("request %d: answered %+v", request, answer)
		}
	}
}

// Whoever hands a lease over knows that it is held, and who gave it back to nobody knows nothing.
func TestAReleaseTellsWhatTheNextJoinSends(t *testing.T) {
	t.Parallel()
	b, statements := tracedBench(t)
	held := b.granted("r", 1)
	b.waits("r", 2, authority.ID{0: 9})
	if _, _, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: authority.ID{0: 1}}); err != nil {
		t.Fatal(err)
	}
	statements.take()
	if answer := b.join("r", 3, true); answer.Outcome != authority.Joined || statements.take() != "JoinHeld" {
		t.Errorf("after a hand-over: answered %+v", answer)
	}
	b.release(b.granted("other", 4))
	statements.take()
	if answer := b.join("other", 5, true); answer.Outcome != authority.Granted || statements.take() != "AcquireFree" {
		t.Errorf("after a release: answered %+v", answer)
	}
}

// Of the leases that were handed over, those that are over or were renewed need no more care.
func TestGhostsAreOnlyThoseThatNobodyHasTouched(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	client := authority.ID{0: 9}
	var handed []authority.Handover
	for i, resource := range []string{"dead", "renewed", "released"} {
		held := b.granted(resource, byte(1+i))
		b.waits(resource, byte(11+i), client)
		_, next, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: authority.ID{0: 1}})
		if err != nil || next.Token.IsZero() {
			t.Fatalf("%s: %+v, %v", resource, next, err)
		}
		handed = append(handed, next)
	}
	b.exec("UPDATE pglease.resource_lease SET expires_at = expires_at + interval '1 second' WHERE resource_id = 'renewed'")
	b.release(handed[2].Token)
	for _, dead := range []bool{false, true} {
		if dead { // nobody holds the session's lock
			b.exec("UPDATE pglease.lease_client SET session_key = 4711")
		}
		all, err := b.Ghosts(t.Context(), handed)
		if gone, current := all[handed[0].Token.LeaseID()]; err != nil || len(all) != 1 || !current || gone != dead {
			t.Errorf("of all: %v, %v", all, err)
		}
		for i, h := range handed {
			one, err := b.Ghosts(t.Context(), []authority.Handover{h})
			if gone, current := one[h.Token.LeaseID()]; err != nil || current != (i == 0) || gone != (i == 0 && dead) {
				t.Errorf("%s alone: %v, %v", h.Token.Resource(), one, err)
			}
		}
	}
}

// A join that waits for a release joins nobody's line: it sees the row as the release has left it.
func TestAJoinThatWaitsForAReleaseIsGranted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change string
		want   authority.Outcome
	}{
		"released":    {"UPDATE pglease.resource_lease SET ended_at = clock_timestamp()", authority.Granted},
		"only locked": {"SELECT FROM pglease.resource_lease FOR UPDATE", authority.Joined},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.granted("r", 1)
			b.fresh("r", 2)
			tx, err := b.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), c.change); err != nil {
				t.Fatal(err)
			}
			joined := make(chan authority.Outcome)
			go func() {
				answer, err := b.Join(t.Context(), joinOf(authority.Request{Resource: "r", ID: authority.ID{0: 3}, Owner: "w", TTL: ttl, Fresh: true}))
				if err != nil {
					t.Error(err)
				}
				joined <- answer.Outcome
			}()
			for waits := false; !waits; {
				b.query("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')", nil, &waits)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := <-joined; got != c.want {
				t.Errorf("answered %q, want %q", got, c.want)
			}
		})
	}
}
