//go:build linux

package patroni

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A view is what Patroni says of the cluster.
type view struct {
	Members []struct {
		Name, Role, State string
	}
}

// Leader is the member whose Postgres takes writes; nil where there is none.
func (c *Cluster) Leader(tb testing.TB) *Member {
	tb.Helper()
	for _, m := range c.Members {
		var state struct{ Role string }
		if get(tb, "http://"+m.api+"/primary", &state) == nil && state.Role == "master" {
			return m
		}
	}
	return nil
}

// Other is the member that is not the given one.
func (c *Cluster) Other(m *Member) *Member {
	if c.Members[0] == m {
		return c.Members[1]
	}
	return c.Members[0]
}

// AwaitPair returns when one member leads and the other one follows it, synchronously where that is asked
// for.
func (c *Cluster) AwaitPair(tb testing.TB) {
	tb.Helper()
	await(tb, "a leader and a standby", func() bool {
		leader := c.Leader(tb)
		return leader != nil && c.follows(tb, leader)
	})
}

// follows tells whether the other member follows the leader, as both Patroni and the leader's Postgres say.
func (c *Cluster) follows(tb testing.TB, leader *Member) bool {
	tb.Helper()
	role := "replica"
	if c.Synchronous {
		role = "sync_standby"
	}
	var now view
	if get(tb, "http://"+leader.api+"/cluster", &now) != nil {
		return false
	}
	for _, m := range now.Members {
		if m.Name != leader.Name && m.Role == role && (m.State == "running" || m.State == "streaming") {
			return leader.sends(tb, role == "sync_standby")
		}
	}
	return false
}

// sends tells whether the member's Postgres has a standby that receives what is written as it is written.
// Where it does not answer just now, it does not.
func (m *Member) sends(tb testing.TB, synchronously bool) (sends bool) {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), m.URL)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close(context.WithoutCancel(tb.Context())) }()
	err = conn.QueryRow(tb.Context(), "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming' AND (sync_state = 'sync' OR NOT $1)", synchronously).Scan(&sends)
	return err == nil && sends
}

// AwaitLeader returns the member that leads after another one.
func (c *Cluster) AwaitLeader(tb testing.TB, before *Member) *Member {
	tb.Helper()
	other := c.Other(before)
	await(tb, other.Name+" leads", func() bool { return c.Leader(tb) == other })
	return other
}

// Switchover has Patroni hand over to the other member, and returns the one that leads then.
func (c *Cluster) Switchover(tb testing.TB) *Member {
	tb.Helper()
	c.AwaitPair(tb)
	from := c.Leader(tb)
	to := c.Other(from)
	await(tb, "a switchover", func() bool {
		said := c.ask(tb, from, fmt.Sprintf(`{"leader": %q, "candidate": %q}`, from.Name, to.Name))
		tb.Logf("from %s to %s: %s", from.Name, to.Name, said)
		return c.Leader(tb) != from // it may have refused, where it did not yet know that the other one follows
	})
	return c.AwaitLeader(tb, from)
}

// ask sends one order to a member, and returns what it answers.
func (c *Cluster) ask(tb testing.TB, m *Member, order string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience/2)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+m.api+"/switchover", strings.NewReader(order))
	if err != nil {
		tb.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s: %s", response.Status, text)
}
