//go:build linux

package torture

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/torture/history"
	"github.com/pglease/pglease/internal/torture/proxy"
	"github.com/pglease/pglease/internal/torture/worker"
	"github.com/pglease/pglease/pglease"
)

// A fault is one kind of what the scheduler does to a process or to its network. It blocks for as
// long as the fault lasts. It reports by leg.did what it did, if it did.
type fault struct {
	kind   string
	weight int
	strike func(ctx context.Context, l *leg, c *child, d draw)
}

// draw is what was drawn from the seed for one fault.
type draw struct {
	fraction float64 // 0 to 1: how long, of the longest
	choice   int
}

func (d draw) of(longest time.Duration) time.Duration {
	return time.Duration(d.fraction * float64(longest))
}

// Kinds of faults.
const (
	stopped             = "process_stopped"
	processKilled       = "process_killed"
	requestLost         = "request_lost"
	replyLost           = "reply_lost"
	releaseDelayed      = "release_delayed"
	releaseDuplicated   = "release_duplicated"
	authorityCutOff     = "authority_cut_off"
	resourceCutOff      = "resource_cut_off"
	commandsReordered   = "commands_reordered"
	renewalDelayed      = "renewal_delayed"
	backendKilled       = "backend_killed"
	statementCancelled  = "statement_cancelled"
	poolExhausted       = "pool_exhausted"
	leaseBroken         = "lease_broken"
	networkSlow         = "network_slow"
	authorityCrashed    = history.Crashed
	resourceCrashed     = "resource_crashed"
	standbyPromoted     = "standby_promoted"
	authorityRestored   = "authority_restored"
	clockSet            = "clock_set"
	anyName             = ""
	statementOfRelease  = "Release"
	statementOfRenewal  = "Renew"
	statementOfCommit   = "commit"
	statementOfWait     = "Await"
	longestStopOfTTL    = 3
	longestSilenceOfTTL = 2
)

var faults = []fault{
	{stopped, 8, func(ctx context.Context, l *leg, c *child, d draw) {
		if from := time.Now(); c.freeze() {
			wait(ctx, d.of(longestStopOfTTL*l.TTL))
			c.thaw()
			l.did(stopped, c.name, "", from)
		}
	}},
	{processKilled, 2, func(_ context.Context, l *leg, c *child, _ draw) {
		if from := time.Now(); c.kill() {
			l.did(processKilled, c.name, "", from)
		}
	}},
	{requestLost, 10, func(_ context.Context, l *leg, c *child, d draw) {
		l.arm(requestLost, c, d, proxy.Rule{Kind: proxy.LoseRequest})
	}},
	{replyLost, 14, func(_ context.Context, l *leg, c *child, d draw) {
		l.arm(replyLost, c, d, proxy.Rule{Kind: proxy.LoseReply})
	}},
	{releaseDelayed, 6, func(_ context.Context, l *leg, c *child, d draw) {
		c.authority.Arm(&proxy.Rule{
			Kind: proxy.Delay, Match: is(statementOfRelease), Wait: d.of(longestStopOfTTL * l.TTL), Struck: l.struck(releaseDelayed, c),
		})
	}},
	{renewalDelayed, 4, func(_ context.Context, l *leg, c *child, d draw) {
		c.authority.Arm(&proxy.Rule{
			Kind: proxy.Delay, Match: is(statementOfRenewal), Wait: d.of(longestStopOfTTL * l.TTL), Struck: l.struck(renewalDelayed, c),
		})
	}},
	{releaseDuplicated, 6, duplicateRelease},
	{authorityCutOff, 5, func(ctx context.Context, l *leg, c *child, d draw) {
		from := time.Now()
		c.authority.Silence()
		wait(ctx, d.of(longestSilenceOfTTL*l.TTL))
		c.authority.Thaw(0)
		l.did(authorityCutOff, c.name, "", from)
	}},
	{resourceCutOff, 5, func(ctx context.Context, l *leg, c *child, d draw) {
		from := time.Now()
		c.resource.Silence()
		wait(ctx, d.of(longestSilenceOfTTL*l.TTL))
		c.resource.Thaw(0)
		l.did(resourceCutOff, c.name, "", from)
	}},
	{commandsReordered, 5, func(ctx context.Context, l *leg, c *child, d draw) {
		from := time.Now()
		link := []*proxy.Link{c.authority, c.resource}[d.choice%2]
		link.Silence()
		wait(ctx, d.of(l.TTL))
		link.Thaw(l.TTL)
		l.did(commandsReordered, c.name, []string{"authority", "resource"}[d.choice%2], from)
	}},
	{backendKilled, 8, killBackend},
	{statementCancelled, 8, cancelStatement},
	{poolExhausted, 4, func(ctx context.Context, l *leg, c *child, d draw) {
		from := time.Now()
		if c.tell(worker.Command{Drain: d.of(l.TTL)}) == nil {
			wait(ctx, d.of(l.TTL))
			l.did(poolExhausted, c.name, "", from)
		}
	}},
	{networkSlow, 3, func(ctx context.Context, l *leg, c *child, d draw) {
		from := time.Now()
		c.authority.Lag(l.TTL / 20)
		c.resource.Lag(l.TTL / 20)
		wait(ctx, d.of(l.TTL))
		c.authority.Lag(0)
		c.resource.Lag(0)
		l.did(networkSlow, c.name, "", from)
	}},
	{leaseBroken, 2, breakOne},
}

// is matches a statement, whichever form of it is sent: Release is also ReleaseUnawaited.
func is(name string) func(string) bool {
	return func(s string) bool { return strings.HasPrefix(s, name) }
}

// arm loses a request or a reply of a statement that is drawn: of one that changes something, most
// times.
func (l *leg) arm(kind string, c *child, d draw, r proxy.Rule) {
	authority := []string{"Acquire", "Join", statementOfRelease, statementOfRenewal, statementOfCommit, "Leave", "Abandon", "Watch", statementOfWait, anyName}
	resource := []string{"Replace", "Settle", "Establish", "Claim", statementOfCommit, anyName}
	n := d.choice % (len(authority) + len(resource))
	link, names := c.authority, authority
	if n >= len(authority) {
		link, names, n = c.resource, resource, n-len(authority)
	}
	r.Match = func(name string) bool { return names[n] == anyName || is(names[n])(name) }
	r.Struck = l.struck(kind, c)
	link.Arm(&r)
}

// struck counts a fault when its statement has come.
func (l *leg) struck(kind string, c *child) func(string) {
	return func(detail string) { l.did(kind, c.name, detail, time.Now()) }
}

// duplicateRelease sends a copy of a release by another way, later than the original.
func duplicateRelease(ctx context.Context, l *leg, c *child, d draw) {
	c.authority.Arm(&proxy.Rule{Kind: proxy.Copy, Match: is(statementOfRelease), Copied: func(s proxy.Statement) {
		l.pending.Go(func() {
			wait(ctx, d.of(longestStopOfTTL*l.TTL))
			from := time.Now()
			err := onServer(ctx, l.servers.authorityURL(), func(ctx context.Context, conn *pgx.Conn) error {
				return conn.PgConn().ExecParams(ctx, s.SQL, s.Values, s.Types, s.Formats, nil).Read().Err
			})
			if err == nil {
				l.did(releaseDuplicated, c.name, "", from)
			}
		})
	}})
}

// killBackend ends a session of the workers, whichever.
func killBackend(ctx context.Context, l *leg, _ *child, d draw) {
	l.signal(ctx, d, backendKilled, "pg_terminate_backend(pid)", "true")
}

// cancelStatement cancels what a session of the workers is at, as an operator does or a limit of time. At the authority
// it is mostly the wait of one that is to be woken alone.
func cancelStatement(ctx context.Context, l *leg, _ *child, d draw) {
	l.signal(ctx, d, statementCancelled, "pg_cancel_backend(pid)", "state = 'active'")
}

// signal does something to a session of the workers, one of those that are meant.
func (l *leg) signal(ctx context.Context, d draw, kind, what, meant string) {
	url, which := l.servers.authorityURL(), "authority"
	if d.choice%3 == 0 {
		url, which = l.servers.resourceURL(), "resource"
	}
	from := time.Now()
	err := onServer(ctx, url, func(ctx context.Context, conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, "SELECT "+what+` FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND datname = current_database() AND `+meant+`
			ORDER BY random() LIMIT 1`)
		if err == nil && tag.RowsAffected() == 0 {
			err = pgx.ErrNoRows
		}
		return err
	})
	if err == nil {
		l.did(kind, which, "", from)
	}
}

// breakOne ends a lease as an operator does who thinks that it is stuck.
func breakOne(ctx context.Context, l *leg, _ *child, d draw) {
	l.breakLease(ctx, l.resources[d.choice%len(l.resources)], func(pglease.Description) bool { return true })
}

// breakLease ends the lease that is seen on a resource, if want says so.
func (l *leg) breakLease(ctx context.Context, resource string, want func(pglease.Description) bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	from := time.Now()
	pool, err := pgxpool.New(ctx, l.servers.authorityURL())
	if err != nil {
		return
	}
	defer pool.Close()
	operator, err := pglease.New(ctx, pool, pglease.Config{Owner: "operator"})
	if err != nil {
		return
	}
	defer func() { _ = operator.Close(ctx) }()
	seen, err := operator.Describe(ctx, resource)
	if err != nil || !seen.Held || !want(seen) {
		return
	}
	if operator.Break(ctx, seen, "operator", "it looks stuck") == nil {
		l.did(leaseBroken, resource, fmt.Sprintf("fence %d", seen.Token.Fence()), from)
	}
}

// drawable are the faults that are to be made, each as often as its weight says.
func drawable(all []fault, only []string) []fault {
	var list []fault
	for _, f := range all {
		if len(only) == 0 || slices.Contains(only, f.kind) {
			for range f.weight {
				list = append(list, f)
			}
		}
	}
	return list
}
