//go:build unix

package sequences_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease"
)

// TestAKilledSleeperHoldsNobodyUp: a process is killed while its session waits in the server, and is the next in line.
// Where the resource is released after the server has noticed, it goes to the next one in the same commit. Where it is
// released before, it is granted to the dead, and whoever released it takes it back at half its TTL.
//
//	   owner        W1, a process         W2, a process      authority
//	1               is served; releases;
//	                joins again           joins behind it
//	2               its session sleeps
//	                in lease_await
//	3               SIGKILL
//	4                                                        ends W1's session
//	5  releases                                              passes W1 over, grants to W2
func TestAKilledSleeperHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	for name, noticed := range map[string]bool{"noticed before the release": true, "released at once": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.sleepsLast(t)
			const ttl = 12 * time.Second
			owner := newClient(t, s.leases, pglease.Config{Owner: "owner", TTL: time.Hour})
			w1 := s.start(t, role{Name: "W1", TTL: ttl, DirectWake: true})
			w2 := s.start(t, role{Name: "W2", TTL: ttl, DirectWake: true})
			held, session := s.asleepInLine(t, owner, w1, w2)
			w1.kill(t)
			killed := time.Now()
			if noticed {
				s.awaitEnd(t, session, killed.Add(ttl))
				t.Logf("the server ended the session of the dead after %v", time.Since(killed))
			}
			release(t, held)
			if said := w2.hear(t); said.Outcome != outcomeOK {
				t.Fatalf("%+v", said)
			}
			took := time.Since(killed)
			t.Logf("W2 was served %v after the kill", took)
			if took > ttl*3/4 {
				t.Errorf("W2 was served %v after the kill: a TTL is %v", took, ttl)
			}
			s.awaitEnd(t, session, killed.Add(ttl))
			if by := s.served(t, held.Token().Fence()); noticed && by != "W2" {
				t.Errorf("the release served %s", by)
			}
			w2.does(t, command{Do: "release"}, outcomeOK)
		})
	}
}

// sleepsLast makes a wait in the server last until somebody ends it, so that none is over as the test looks.
func (s *stage) sleepsLast(t *testing.T) {
	t.Helper()
	var is string
	if err := s.leases.QueryRow(t.Context(), "SELECT pg_get_functiondef('pglease.lease_await'::regproc)").Scan(&is); err != nil {
		t.Fatal(err)
	}
	lasts := strings.Replace(is, "pg_sleep(extract(epoch FROM p_most))", "pg_sleep(3600)", 1)
	if lasts == is {
		t.Fatal("lease_await does not sleep as it did")
	}
	if _, err := s.leases.Exec(t.Context(), lasts); err != nil {
		t.Fatal(err)
	}
}

// asleepInLine has both processes wait behind the owner, the first one stopped while its session sleeps in the server:
// it falls asleep if it was served within the last second.
func (s *stage) asleepInLine(t *testing.T, owner *pglease.Client, first, second *process) (held *pglease.Lease, session int) {
	t.Helper()
	for range 300 {
		held := s.take(t, owner)
		for i, p := range []*process{first, second} {
			p.tell(t, command{Do: "acquire"})
			s.inLine(t, i+1)
		}
		first.freeze(t)
		if session := s.asleep(t, "W1"); session != 0 {
			return held, session
		}
		first.thaw(t)
		release(t, held)
		for _, p := range []*process{first, second} {
			if said := p.hear(t); said.Outcome != outcomeOK {
				t.Fatalf("%+v", said)
			}
			p.does(t, command{Do: "release"}, outcomeOK)
		}
	}
	t.Fatal("its session never slept")
	return nil, 0
}

// asleep returns the server's process of the session of a waiter's client, if it is asleep.
func (s *stage) asleep(t *testing.T, waiter string) (session int) {
	t.Helper()
	err := s.leases.QueryRow(t.Context(), `SELECT a.pid FROM pglease.lease_waiter AS w
		JOIN pglease.lease_client AS c ON c.client_id = w.client_id
		JOIN pg_stat_activity AS a ON a.pid = c.session_pid
		WHERE w.owner_id = $1 AND a.wait_event = 'PgSleep' AND a.query LIKE '%lease_await%'`, waiter).Scan(&session)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	return session
}

// awaitEnd returns when the server's process is gone, which it must be by then.
func (s *stage) awaitEnd(t *testing.T, session int, until time.Time) {
	t.Helper()
	for there := true; there; {
		if time.Now().After(until) {
			t.Fatal("the session of the dead is still there")
		}
		if err := s.leases.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1", session).Scan(&there); err != nil {
			t.Fatal(err)
		}
	}
}

// served tells who owned the report after the owner with that fence.
func (s *stage) served(t *testing.T, fence int64) (owner string) {
	t.Helper()
	err := s.leases.QueryRow(t.Context(), `SELECT owner_id FROM (
			SELECT fence, owner_id FROM pglease.lease_history WHERE resource_id = $1
			UNION ALL SELECT fence, owner_id FROM pglease.resource_lease WHERE resource_id = $1 AND ended_at IS NULL
		) AS tenure WHERE fence > $2 ORDER BY fence LIMIT 1`, s.report, fence).Scan(&owner)
	if err != nil {
		t.Fatal(err)
	}
	return owner
}
