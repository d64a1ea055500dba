//go:build unix

package failover_test

import (
	"testing"
	"time"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/internal/torture/failover/servers"
	"github.com/pglease/pglease/pglease"
)

// TestFailoverGraceKeepsOwnersApart: an owner was granted what the failover then lost, and is cut off from
// the new primary, so that it believes in its lease until the lease ends. Without a grace the next owner is
// let in meanwhile: each guarded resource tells the two apart, and nothing else does. With one that is as
// long as the TTL, no two are owners at once.
//
//	   owner                      primary                    standby               another
//	1                             is cut off
//	2  acquires, for a TTL        grants                     does not know of it
//	3                             SIGKILL                    promoted
//	4                                                        no grace: grants      acquires, beside the owner
//	   its trust ends                                        a grace: not yet      waits
//	5                                                        its end: grants       acquires, alone
func TestFailoverGraceKeepsOwnersApart(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	for name, grace := range map[string]*time.Duration{"none": nil, "of one TTL": new(ttl)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rounds, overlaps := 0, 0
			repeat(t, func(t *testing.T) {
				rounds++
				if ownersAtOnce(t, ttl, grace) {
					overlaps++
				}
			})
			if (overlaps > 0) != (grace == nil) {
				t.Errorf("two owners at once in %d of %d failovers", overlaps, rounds)
			}
			t.Logf("two owners at once in %d of %d failovers", overlaps, rounds)
		})
	}
}

// ownersAtOnce tells whether the next owner was let in before the lease of the one that was lost had ended,
// by the clocks of the two servers, which are one.
func ownersAtOnce(t *testing.T, ttl time.Duration, grace *time.Duration) bool {
	t.Helper()
	pair := servers.NewPairWith(t, postgres.Options{Durable: true}, postgres.Options{Durable: true})
	if _, err := connect(t, pair.Primary.URL()).Exec(t.Context(), "UPDATE pglease.installation SET failover_grace = $1", grace); err != nil {
		t.Fatal(err)
	}
	config := pglease.Config{TTL: ttl}
	owner, another := newClientWith(t, pair.Primary.URL(), config), newClientWith(t, pair.URL, config)
	grantOnce(t, another)
	pair.Replicated(t)
	pair.CutOff(t)
	lost, err := owner.TryAcquire(t.Context(), report)
	if err != nil {
		t.Fatal(err)
	}
	ends := servers.Value[time.Time](t, pair.Primary.URL(), "SELECT expires_at FROM pglease.resource_lease WHERE resource_id = $1", report)
	pair.Fail(t)
	next, err := another.Acquire(t.Context(), report)
	if err != nil {
		t.Fatal(err)
	}
	trusted := lost.Remaining()
	begins := servers.Value[time.Time](t, pair.Standby.URL(), "SELECT acquired_at FROM pglease.resource_lease WHERE resource_id = $1", report)
	if order, err := next.Token().Compare(lost.Token()); err != nil || order <= 0 {
		t.Errorf("%v was followed by %v: %v", lost.Token(), next.Token(), err)
	}
	t.Logf("the next owner came %v after the end of the lease before, of which %v were trusted", begins.Sub(ends), trusted)
	return begins.Before(ends) || trusted > 0
}
