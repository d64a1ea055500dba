//go:build unix

package failover_test

import (
	"context"
	"os"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/internal/torture/failover/crew"
	"github.com/pglease/pglease/internal/torture/failover/servers"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// TestLossyFailovers: replication is asynchronous. The primary is killed with commits that it has
// confirmed and not sent, and the standby takes over. Every client carries on. The reports are elsewhere,
// and have seen the fences that were lost.
//
//	   clients                          primary            standby               reports
//	1  own reports in turn              grants             follows               accepts
//	2                                   is cut off
//	3  go on                            grants 20 more     has none of them      accepts all of them
//	4                                   SIGKILL            promoted
//	5  go on, by the same URL                              grants: all greater   accepts, and refuses the old
func TestLossyFailovers(t *testing.T) {
	t.Parallel()
	t.Run("clocks agree", func(t *testing.T) {
		t.Parallel()
		repeat(t, func(t *testing.T) { loseGrants(t, postgres.Options{Durable: true}) })
	})
	// A new owner is let in when the leases that were lost are over.
	t.Run("with a failover grace", func(t *testing.T) {
		t.Parallel()
		repeat(t, func(t *testing.T) { loseGrants(t, postgres.Options{Durable: true}, "failover_grace = '2 s'") })
	})
	// Here the timeline alone keeps the order. The lease that the standby knows as current lasts as much longer.
	t.Run("the standby's clock is ten seconds behind", func(t *testing.T) {
		t.Parallel()
		library := servers.Faketime(t)
		repeat(t, func(t *testing.T) {
			loseGrants(t, postgres.Options{Durable: true, Env: []string{
				"LD_PRELOAD=" + library, "FAKETIME=-10s", "FAKETIME_DONT_FAKE_MONOTONIC=1",
			}})
		})
	})
}

func loseGrants(t *testing.T, standby postgres.Options, settings ...string) {
	t.Helper()
	pair := servers.NewPairWith(t, postgres.Options{Durable: true}, standby)
	for _, setting := range settings {
		if _, err := connect(t, pair.Primary.URL()).Exec(t.Context(), "UPDATE pglease.installation SET "+setting); err != nil {
			t.Fatal(err)
		}
	}
	c := crew.Hire(t, pair.URL, pgleasetest.URL(t, migrations.Report))
	c.More(t, 10)
	pair.Replicated(t)
	pair.CutOff(t)
	c.More(t, 20)
	pair.Fail(t)
	c.More(t, 20)
	c.Dismiss()

	c.WantOrder(t)
	c.WantSound(t)
	lost := len(c.Lost(t, pair.Standby.URL()))
	if lost < 10 {
		t.Errorf("%d grants were lost: the failover was to lose them", lost)
	}
	t.Logf("%d lost of %s", lost, c.Summary())
}

// TestSynchronousFailovers: each commit waits for the standby. The primary is killed in full work. What a
// client was told of is on the new primary: each grant, and each version of the report, which is in the
// same database.
func TestSynchronousFailovers(t *testing.T) {
	t.Parallel()
	repeat(t, func(t *testing.T) {
		pair := servers.NewPairWith(t, postgres.Options{Durable: true}, postgres.Options{Durable: true})
		synchronous(t, pair)
		c := crew.Hire(t, pair.URL, pair.URL)
		c.More(t, 20)
		pair.Fail(t)
		c.More(t, 20)
		c.Dismiss()

		c.WantOrder(t)
		c.WantSound(t)
		c.WantKnown(t, pair.Standby.URL())
		t.Logf("none lost of %s", c.Summary())
	})
}

// synchronous has commits of the primary wait for the standby, and returns when they do.
func synchronous(t *testing.T, pair *servers.Pair) {
	t.Helper()
	pool := servers.Pool(t, pair.Primary.URL())
	defer pool.Close()
	if err := migrations.Up(t.Context(), pool, migrations.Report); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), pair.Primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = 'walreceiver'", "SELECT pg_reload_conf()"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for state := ""; state != "sync"; {
		state = servers.Value[string](t, pair.Primary.URL(), "SELECT coalesce(min(sync_state), '') FROM pg_stat_replication")
	}
	if _, err := conn.Exec(t.Context(), "CHECKPOINT"); err != nil { // it is the checkpointer that has commits wait, once it has learned to
		t.Fatal(err)
	}
}

// repeat does something twice, or PGLEASE_REPEAT times, each time with what it needs of its own.
func repeat(t *testing.T, do func(*testing.T)) {
	t.Helper()
	n := 2
	if text := os.Getenv("PGLEASE_REPEAT"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		t.Run(strconv.Itoa(i+1), do)
	}
}
