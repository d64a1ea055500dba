package authority

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// A commit that waits for a synchronous standby can be cancelled. The server then answers with
// success and a warning: committed here, and perhaps nowhere else. A failover may lose it, so for
// us the outcome is unknown. Only a notice handler sees the warning, and it is set when a
// connection is made.

// errNotReplicated is the outcome of a statement whose commit was not confirmed by a standby.
var errNotReplicated = errors.New("the wait for a synchronous standby was cancelled")

const (
	watchedKey    = "pglease.watched"
	unsyncedKey   = "pglease.unsynced"
	waitedRoutine = "SyncRepWaitForLSN" // where Postgres raises the warning; its text is translated, this is not
)

// WatchNotices makes the connections of a configuration note the warning.
func WatchNotices(config *pgconn.Config) {
	next := config.OnNotice
	config.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		if n.Routine == waitedRoutine {
			c.CustomData()[unsyncedKey] = unsynced(c) + 1
		}
		if next != nil {
			next(c, n)
		}
	}
	after := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		c.CustomData()[watchedKey] = true
		if after != nil {
			return after(ctx, c)
		}
		return nil
	}
}

func watched(c *pgconn.PgConn) bool {
	yes, _ := c.CustomData()[watchedKey].(bool)
	return yes
}

func unsynced(c *pgconn.PgConn) int {
	n, _ := c.CustomData()[unsyncedKey].(int)
	return n
}

// replicated runs a statement and turns the warning, if it came, into errNotReplicated.
func replicated(c *pgconn.PgConn, statement func() error) error {
	before := unsynced(c)
	err := statement()
	if err == nil && unsynced(c) != before {
		return errNotReplicated
	}
	return err
}
