//go:build unix

package crew

import (
	"fmt"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/torture/failover/servers"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

// A place is a fence of a report.
type place struct {
	report string
	fence  int64
}

func placeOf(token fence.Token) place { return place{token.Resource(), token.Fence()} }

// WantOrder checks that no fence of a report was handed out twice, and that each is greater than all that
// anybody had been told of before it was asked for.
func (c *Crew) WantOrder(tb testing.TB) {
	tb.Helper()
	grants := c.Grants()
	leases := map[place]fence.LeaseID{}
	for _, g := range grants {
		at, id := placeOf(g.Token), g.Token.LeaseID()
		if other, twice := leases[at]; twice && other != id {
			tb.Errorf("fence %d of %s was handed out to lease %s and to lease %s", at.fence, at.report, other, id)
		}
		leases[at] = id
		for _, before := range grants {
			if before.Token.Resource() == at.report && before.told.Before(g.asked) && before.Token.Fence() >= at.fence {
				tb.Errorf("fence %d of %s was followed by %d", before.Token.Fence(), at.report, at.fence)
			}
		}
	}
}

// WantSound checks the reports' own history: no older owner wrote over a newer one's work, each version was
// written under a grant, all that a client was told of is there, and whoever wrote late was refused.
func (c *Crew) WantSound(tb testing.TB) {
	tb.Helper()
	granted := map[place]fence.LeaseID{}
	for _, g := range c.Grants() {
		granted[placeOf(g.Token)] = g.Token.LeaseID()
	}
	there := map[string][]reportstore.Version{}
	for _, report := range reports {
		history, err := c.store.History(tb.Context(), report)
		if err != nil {
			tb.Fatal(err)
		}
		there[report] = history
		if stale := reportstore.Regressions(history); len(stale) > 0 {
			tb.Errorf("an older owner wrote over a newer one's work: %+v", stale)
		}
		for _, v := range history {
			if granted[place{report, v.Fence}] != v.LeaseID {
				tb.Errorf("version %d of %s was written under fence %d, lease %s, of which nobody was told", v.Number, report, v.Fence, v.LeaseID)
			}
		}
	}
	for _, v := range c.versions {
		history := there[v.by.Resource()]
		if v.number > int64(len(history)) || history[v.number-1].Fence != v.by.Fence() {
			tb.Errorf("version %d of %v was told to its writer, and is not there", v.number, v.by)
		}
	}
	if len(c.accepted) > 0 || c.late == 0 {
		tb.Errorf("writes of earlier owners: %d refused, accepted those of %v", c.late, c.accepted)
	}
}

// WantKnown checks that the server knows of each grant that a client was told of.
func (c *Crew) WantKnown(tb testing.TB, url string) {
	tb.Helper()
	if lost := c.Lost(tb, url); len(lost) > 0 {
		tb.Errorf("%d were granted, and the server does not know of them: %v", len(lost), lost)
	}
}

// Lost are the grants that clients were told of and the server does not know of.
func (c *Crew) Lost(tb testing.TB, url string) (lost []fence.Token) {
	tb.Helper()
	grants := c.Grants() // first: the clients go on
	there := Known(tb, url)
	for _, g := range grants {
		if !there[g.Token.LeaseID().String()] {
			lost = append(lost, g.Token)
		}
	}
	return lost
}

// Known reads the ids of all leases that the server has granted.
func Known(tb testing.TB, url string) map[string]bool {
	tb.Helper()
	ids := map[string]bool{}
	for _, id := range servers.Value[[]string](tb, url, `SELECT array(SELECT lease_id::text FROM pglease.lease_history WHERE lease_id IS NOT NULL
		UNION SELECT lease_id::text FROM pglease.resource_lease)`) {
		ids[id] = true
	}
	return ids
}

// Summary says what was done, and for how long nobody could publish.
func (c *Crew) Summary() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pause time.Duration
	for i := range c.versions[:max(len(c.versions)-1, 0)] {
		pause = max(pause, c.versions[i+1].told.Sub(c.versions[i].told))
	}
	return fmt.Sprintf("%d grants, %d versions, %d late writes refused; the longest time without a version: %v",
		len(c.grants), len(c.versions), c.late, pause.Round(time.Millisecond))
}
