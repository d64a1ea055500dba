//go:build linux

package patroni_test

import (
	"testing"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/internal/torture/failover/crew"
	"github.com/pglease/pglease/internal/torture/failover/patroni"
	"github.com/pglease/pglease/internal/torture/failover/servers"
	"github.com/pglease/pglease/migrations"
)

// TestPatroni: Patroni decides who leads, asynchronously replicated. Every client carries on through all of
// it, with no restart and by one URL. The reports are elsewhere, and have seen the fences that were lost.
//
//	   clients           one member                another member         reports
//	1  own in turn       leads                     follows                accept
//	2                    hands over, as asked      is promoted
//	3  go on             follows                   leads                  accept; generation + 1
//	4                    is cut off
//	5  go on             has none of the grants    goes on granting       accept
//	6                                              SIGKILL, Patroni too
//	7                    is promoted, after the TTL
//	8  go on             leads                                            accept, and refuse the old; generation + 1
//	9                                              comes back, rewinds its lost
//	                                               grants and follows
//	10                   hands over                leads                  the same
func TestPatroni(t *testing.T) {
	t.Parallel()
	reports := withReports(t)
	cluster := patroni.Start(t, reports, false)
	migrate(t, cluster.URL, migrations.Lease)
	c := crew.Hire(t, cluster.URL, reports.URL())
	c.More(t, 20)
	first := c.Generation()

	leader := cluster.Switchover(t)
	wantRaised(t, c, first)
	if lost := c.Lost(t, leader.URL); len(lost) > 0 {
		t.Errorf("a planned switchover lost the grants of %v", lost)
	}

	cluster.AwaitPair(t)
	second := c.Generation()
	servers.CutOff(t, leader.URL)
	c.More(t, 20)
	leader.Kill(t)
	next := cluster.AwaitLeader(t, leader)
	wantRaised(t, c, second)
	if lost := c.Lost(t, next.URL); len(lost) < 10 {
		t.Errorf("the leader's death lost the grants of %v: it was to lose more", lost)
	}

	leader.Start(t)
	cluster.AwaitPair(t)
	third := c.Generation()
	if back := cluster.Switchover(t); back != leader {
		t.Errorf("%s leads", back.Name)
	}
	wantRaised(t, c, third)
	c.Dismiss()
	c.WantOrder(t)
	c.WantSound(t)
	t.Log(c.Summary())
}

// TestPatroniSynchronous: the leader's commits wait for the standby, as Patroni arranges it. Whatever a client
// was told of is there after each change of the leader: each grant, and each version of the reports, which
// are in the same database.
//
//	   clients           one member                another member
//	1  own in turn       leads                     follows, synchronously
//	2                    hands over, as asked      is promoted
//	3  go on             follows, synchronously    leads
//	4                                              SIGKILL, Patroni too
//	5  go on             is promoted: knows of
//	                     all that was told
func TestPatroniSynchronous(t *testing.T) {
	t.Parallel()
	cluster := patroni.Start(t, withReports(t), true)
	migrate(t, cluster.URL, migrations.Lease, migrations.Report)
	c := crew.Hire(t, cluster.URL, cluster.URL)
	c.More(t, 20)
	first := c.Generation()

	leader := cluster.Switchover(t)
	wantRaised(t, c, first)
	c.WantKnown(t, leader.URL)

	cluster.AwaitPair(t)
	second := c.Generation()
	c.More(t, 20)
	leader.Kill(t)
	next := cluster.AwaitLeader(t, leader)
	wantRaised(t, c, second)
	c.Dismiss()
	c.WantKnown(t, next.URL)
	c.WantOrder(t)
	c.WantSound(t)
	t.Log(c.Summary())
}

// wantRaised returns when the clients have published 20 more versions, and checks that the fences are of a
// higher generation now.
func wantRaised(t *testing.T, c *crew.Crew, generation int64) {
	t.Helper()
	c.More(t, 20)
	if now := c.Generation(); now <= generation {
		t.Errorf("generation %d came after %d", now, generation)
	}
	t.Logf("generation %d was followed by %d: %s", generation, c.Generation(), c.Summary())
}

// withReports is a server that nothing happens to.
func withReports(t *testing.T) *postgres.Server {
	t.Helper()
	server := servers.Own(t, postgres.Options{})
	migrate(t, server.URL(), migrations.Report)
	return server
}

func migrate(t *testing.T, url string, lines ...migrations.Line) {
	t.Helper()
	pool := servers.Pool(t, url)
	for _, line := range lines {
		if err := migrations.Up(t.Context(), pool, line); err != nil {
			t.Fatal(err)
		}
	}
	pool.Close()
}
