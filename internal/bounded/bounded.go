// Package bounded begins the transactions that this library opens itself. A process that stops within
// one, by SIGSTOP or with its whole machine, does not keep its locks for as long as it is stopped: the
// server ends the transaction.
package bounded

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// Own is the bound of a transaction in which only the library's own code runs. That takes far less
// between two statements, also on a machine that is short of time.
const Own = 5 * time.Second

// A Beginner begins transactions: a pgx pool or connection.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Tx runs fn in a transaction as of Begin. It commits when fn returns nil, and rolls back otherwise.
func Tx(ctx context.Context, db Beginner, idle time.Duration, fn func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, db, options(idle), fn)
}

// Begin begins a transaction at READ COMMITTED, in one round trip. The server ends it when the client
// sends no statement for idle, or takes nothing of a result for so long; a stricter setting of the
// session stays. (A COPY from the client that stops in its middle is not bounded.)
//
// The server ends the session with it: the next statement, or the commit, has an error as of a lost
// connection, with SQLSTATE 25P03 where that could still be read, and pgx closes the connection.
func Begin(ctx context.Context, db Beginner, idle time.Duration) (pgx.Tx, error) {
	return db.BeginTx(ctx, options(idle))
}

// begin is sent as one message. What stands before its BEGIN becomes part of the transaction, as
// Postgres documents for such a message; where it fails, no transaction is left open on the
// connection, as there would be if BEGIN stood first.
//
// A setting in milliseconds is shown in the unit that fits it, as in 90s or 1500ms, which reads as an
// interval whatever the IntervalStyle. 0 means no bound. tcp_user_timeout is shown without its unit,
// and as 0 on a socket of another kind, where it does nothing.
const begin = `SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT pg_catalog.set_config(s.name, '%[1]d', true)
FROM (VALUES ('idle_in_transaction_session_timeout', ''), ('tcp_user_timeout', 'ms')) AS s(name, unit)
WHERE (pg_catalog.current_setting(s.name) || s.unit)::pg_catalog.interval NOT BETWEEN '1 ms' AND '%[1]d ms';
BEGIN`

func options(idle time.Duration) pgx.TxOptions {
	bound := min(max(math.Ceil(idle.Seconds()*1000), 1), math.MaxInt32)
	return pgx.TxOptions{IsoLevel: pgx.ReadCommitted, BeginQuery: fmt.Sprintf(begin, int64(bound))}
}
