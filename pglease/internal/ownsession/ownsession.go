// Package ownsession tells whether a connection has a session of the server to itself. Behind a transaction pooler it
// has not: LISTEN and session locks are left behind there, in a session that is given to others.
package ownsession

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// ErrShared tells that the session of the server is not the connection's own.
var ErrShared = errors.New("a transaction pooler is in between")

// tries bounds the looks for a pooler. One is enough where it hands out the session that was
// used last, as pgbouncer does, or all in turn; a busy one is found out sooner or later.
const tries = 5

// Check returns ErrShared for a connection whose session a pooler may give to another client; onOther runs a function
// on another connection, by the same way. Without a pooler the process that answers is the one that
// said its id when the connection was made.
func Check(ctx context.Context, conn *pgx.Conn, onOther func(context.Context, func(*pgx.Conn) error) error) error {
	mine, err := process(ctx, conn)
	if err != nil || mine == conn.PgConn().PID() {
		return err
	}
	for range tries {
		var others uint32
		err := onOther(ctx, func(c *pgx.Conn) (err error) {
			others, err = process(ctx, c)
			return err
		})
		if err != nil {
			return err
		}
		for range 2 { // of two sessions in turn every second statement has the same
			again, err := process(ctx, conn)
			if err != nil {
				return err
			}
			if others == mine || again != mine {
				return ErrShared
			}
		}
	}
	return nil
}

// process is the server's that answers.
func process(ctx context.Context, c *pgx.Conn) (pid uint32, err error) {
	err = c.QueryRow(ctx, "SELECT pg_backend_pid()::int8").Scan(&pid)
	return pid, err
}
