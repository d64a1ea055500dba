package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// prefix begins the name of each demo's schema; eight hexadecimal digits follow.
const prefix = "reportpublisher_demo_"

// passing is the comment on a schema that is gone when its demo ends. Only those are swept: one that
// was to be kept has another.
const passing = "a reportpublisher demo at work; the next demo drops it if this one was killed"

// occupy makes the stage's schema and sweeps away those that dead demos left.
//
// A demo lives as long as the transaction that hold opens: it has an advisory lock on the
// schema's name, taken before the schema is made. When the process is killed the server ends the
// session, and the lock is free. A lock of a session would be lost in a pooler.
func (s *stage) occupy(ctx context.Context) (err error) {
	if !s.server.Started() {
		if s.swept, err = s.sweep(ctx); err != nil {
			return err
		}
	}
	if err := s.hold(ctx); err != nil {
		return err
	}
	if s.keep {
		return nil // the migrations make it
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "CREATE SCHEMA "+s.schema.Quoted()); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, fmt.Sprintf("COMMENT ON SCHEMA %s IS '%s'", s.schema.Quoted(), passing))
		return err
	})
}

// hold opens the transaction, on a connection of its own: the pool may be one of one connection. The
// server must not take its waiting for idleness.
func (s *stage) hold(ctx context.Context) (err error) {
	if s.claim, err = pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig); err != nil {
		return err
	}
	tx, err := s.claim.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", s.schema.Name())
	return err
}

// sweepTime bounds the sweep of one schema: a demo does not wait for somebody who looks at one.
const sweepTime = 3 * time.Second

// sweep drops the schemas of dead demos and returns how many. One that cannot be dropped stays for
// the next demo.
func (s *stage) sweep(ctx context.Context) (dropped int, err error) {
	const query = `
SELECT n.nspname FROM pg_catalog.pg_namespace AS n
WHERE n.nspname ~ ('^' || $1 || '[0-9a-f]{8}$') AND obj_description(n.oid, 'pg_namespace') = $2
  AND pg_has_role(n.nspowner, 'USAGE')`
	rows, err := s.pool.Query(ctx, query, prefix, passing)
	if err != nil {
		return 0, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if s.drop(ctx, name) == nil {
			dropped++
		}
	}
	return dropped, ctx.Err()
}

var errAlive = errors.New("its demo is at work")

func (s *stage) drop(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var dead bool
		err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))", name).Scan(&dead)
		if err != nil {
			return err
		}
		if !dead {
			return errAlive
		}
		_, err = tx.Exec(ctx, "DROP SCHEMA "+pgx.Identifier{name}.Sanitize()+" CASCADE")
		return err
	})
}
