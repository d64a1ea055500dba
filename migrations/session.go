package migrations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// madeByUs is the comment by which Down knows that the schema was made by Up.
const madeByUs = "made by pglease migrate"

// connect opens a connection like those of the pool, but not one of them: a pool of one, or a
// drained one, must not stop a migrator.
func connect(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	config := pool.Config()
	conn := config.ConnConfig
	// Prepared statements belong to a session, and a pooler may give us another at each transaction.
	conn.DefaultQueryExecMode = pgx.QueryExecModeExec
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = "pglease migrate"
	}
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, conn); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, conn)
}

// closeConn ends the session, also when ctx is over.
func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = conn.Close(ctx) // nothing is left to lose: each transaction was committed or is undone
}

const (
	attempts   = 4
	firstPause = 50 * time.Millisecond
)

// locked runs work in a transaction that excludes all other migrators of the schema. What a
// deadlock or a rival refused is tried again: the transaction left nothing.
func (m *Migrator) locked(ctx context.Context, conn *pgx.Conn, work func(pgx.Tx) error) error {
	pause := firstPause
	for attempt := 1; ; attempt++ {
		err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if err := m.lock(ctx, tx); err != nil {
				return err
			}
			return work(tx)
		})
		if err == nil || !transient(err) || attempt == attempts {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
			pause *= 2
		}
	}
}

func transient(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code {
	case serialization, deadlock:
		return true
	case duplicateSchema: // somebody else made it after we looked
		return true
	case uniqueViolation:
		return refused.TableName == "pg_namespace" // the same, a moment earlier
	}
	return false
}

// begin lifts timeouts that were meant for an application's queries, and makes the server notice
// within a second that a migrator was killed: else its session would keep the lock for as long as
// its statement runs. The setting does not exist on every server. A migrator that is stopped between
// two statements is not waited for longer than ten seconds, which is far more than it takes from one
// to the next: it has its turn, and the tables, in its hands.
const begin = `
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = '10s';
SET LOCAL lock_timeout = 0;
DO $$
BEGIN
    PERFORM set_config('client_connection_check_interval', '1s', true);
EXCEPTION WHEN OTHERS THEN
    NULL;
END
$$`

// lock waits for its turn. A lock of the transaction, not of the session, is never left behind in
// a pooler. From here on the user's own lock_timeout counts: a migration that waits for a table
// makes all others wait behind it.
func (m *Migrator) lock(ctx context.Context, tx pgx.Tx) error {
	if err := execAll(ctx, tx, begin); err != nil {
		return err
	}
	name := "pglease migrate " + m.schema.Name()
	if err := exec(ctx, tx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", name); err != nil {
		return err
	}
	return exec(ctx, tx, "SET LOCAL lock_timeout TO DEFAULT")
}

// table returns the quoted name of a line's version table.
func (m *Migrator) table(line Line) string {
	return m.schema.Quoted() + "." + pgx.Identifier{tableName(line)}.Sanitize()
}

func tableName(line Line) string { return "migrations_" + string(line) }

// prepare makes the schema and the version table where they are missing. Where they are there it
// needs no right to create anything.
func (m *Migrator) prepare(ctx context.Context, tx pgx.Tx, line Line) error {
	hasSchema, hasTable, err := m.exists(ctx, tx, line)
	if err != nil {
		return err
	}
	if !hasSchema {
		if err := exec(ctx, tx, "CREATE SCHEMA "+m.schema.Quoted()); err != nil {
			return err
		}
		if err := exec(ctx, tx, fmt.Sprintf("COMMENT ON SCHEMA %s IS '%s'", m.schema.Quoted(), madeByUs)); err != nil {
			return err
		}
	}
	if hasTable {
		return nil
	}
	// The columns are golang-migrate's.
	return exec(ctx, tx, "CREATE TABLE "+m.table(line)+" (version bigint NOT NULL PRIMARY KEY, dirty boolean NOT NULL)")
}

func (m *Migrator) exists(ctx context.Context, tx pgx.Tx, line Line) (hasSchema, hasTable bool, err error) {
	const query = `
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace n WHERE n.nspname = $1),
       EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = $1 AND c.relname = $2)`
	err = tx.QueryRow(ctx, query, m.schema.Name(), tableName(line)).Scan(&hasSchema, &hasTable)
	return hasSchema, hasTable, err
}

// remove drops the version table, and the schema if Up made it and nothing is in it.
func (m *Migrator) remove(ctx context.Context, tx pgx.Tx, line Line) error {
	if err := exec(ctx, tx, "DROP TABLE "+m.table(line)); err != nil {
		return err
	}
	var ours bool
	const query = `
SELECT coalesce(obj_description(n.oid, 'pg_namespace') = $2, false)
FROM pg_catalog.pg_namespace n WHERE n.nspname = $1`
	if err := tx.QueryRow(ctx, query, m.schema.Name(), madeByUs).Scan(&ours); err != nil || !ours {
		return err
	}
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		return exec(ctx, tx, "DROP SCHEMA "+m.schema.Quoted())
	})
	switch code(err) {
	case dependentsExist, insufficientRights: // something else is in it, or a privilege was taken away
		return nil
	}
	return err
}
