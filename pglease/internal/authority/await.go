package authority

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/leasedb"
)

// Session is a listening session as the others are to see it. The zero Session: there is none.
type Session struct {
	Key     int64 // of the advisory lock that it holds
	Process int32 // the server's, where it can be roused; else 0
}

// Awaited is what a client may be granted.
type Awaited struct {
	Key       int64 // of the session
	Resources []string
	Leases    []ID          // ids that its waiters have, or will have
	Most      time.Duration // how long to wait for one
}

// Awaiting is what came.
type Awaiting struct {
	Grants []Awarded
	Rings  []Ring // notifications that were sent meanwhile
	Roused bool   // the wait was ended: by a grant, perhaps of what was not listed, or by a stranger
	Slept  bool   // it came to its end by itself

	Unconfirmed bool // as Answer's, of all grants
}

// Awarded is a lease that was granted to a waiter of the client.
type Awarded struct {
	Token     fence.Token
	Remaining time.Duration // as the wait began; more than the TTL where it was granted later
}

// Reasons why a session cannot be roused.
var (
	errStandby = errors.New("synchronous_standby_names is set: a grant is to be confirmed by the standby")
	errRoles   = errors.New("a role that hands leases over may not cancel this session's statements")
)

// ready is the session's: that it ends at once when the process dies asleep; that its waits are bounded by
// nothing but their own limit; and that it sees what was committed since they began.
const ready = `SELECT set_config('client_connection_check_interval', '100ms', false),
       set_config('default_transaction_isolation', 'read committed', false),
       (SELECT count(set_config(s.name, '0', false)) FROM pg_catalog.pg_settings AS s
        WHERE s.name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout'))`

// Rousable implements Listener.
func (l *listener) Rousable(ctx context.Context) (process int32, err error) {
	if _, err := l.conn.Exec(ctx, l.schema.SQL(ready)); err != nil { // before Postgres 14, or not on Linux
		return 0, err
	}
	row, err := l.queries.Rousable(ctx, l.schema.On(l.conn), l.schema.Quoted()+".resource_lease")
	switch {
	case err != nil:
		return 0, err
	case row.WaitsForStandby:
		return 0, errStandby
	case row.Refused != "":
		return 0, fmt.Errorf("%w: %q", errRoles, row.Refused)
	}
	return row.SessionPid, nil
}

// Await implements Listener.
func (l *listener) Await(ctx context.Context, a Awaited) (answer Awaiting, err error) {
	params := leasedb.AwaitParams{SessionKey: a.Key, Resources: a.Resources, Leases: uuids(a.Leases), Most: a.Most}
	rows, err := l.queries.Await(ctx, l.schema.On(l.conn), params)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "57014": // in the instant between two blocks of the function
		answer.Roused = true
	case err != nil:
		return Awaiting{}, err
	}
	for _, row := range rows {
		if row.Fence > 0 {
			answer.Grants = append(answer.Grants, Awarded{Token: token(row.ResourceID, row.Fence, row.LeaseID), Remaining: row.Remaining})
			continue
		}
		answer.Roused, answer.Slept, answer.Unconfirmed = row.Roused, row.Slept, row.WaitsForStandby
	}
	answer.Rings = l.behind(ctx)
	for _, ring := range answer.Rings { // one that asks to look: the session learns of a standby only between its statements
		answer.Unconfirmed = answer.Unconfirmed || ring.Fence == 0
	}
	return answer, nil
}

// behind returns the rings that came with an answer.
func (l *listener) behind(ctx context.Context) (rings []Ring) {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for {
		ring, err := l.Next(ended)
		if err != nil {
			return rings
		}
		rings = append(rings, ring)
	}
}
