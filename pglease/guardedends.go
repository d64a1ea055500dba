package pglease

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/internal/leasedb"
)

// The two ends of a guarded transaction travel with the guard: BEGIN with the first, COMMIT with the
// last, so that GuardedTx has as many round trips as the same transaction without a guard.

// opening sends a statement along with the BEGIN before it.
type opening struct {
	leasedb.DBTX
	conn    *pgx.Conn
	options pgx.TxOptions
	tx      pgx.Tx // once it has been sent, whether or not it began
}

func (o *opening) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	b := &pgx.Batch{}
	b.BeginTx(o.options)
	b.Queue(sql, args...)
	results := o.conn.SendBatch(ctx, b)
	o.tx = results.Tx()
	return openingRow{results}
}

// openingRow is the row of the statement after BEGIN.
type openingRow struct{ results pgx.BatchResults }

func (r openingRow) Scan(dest ...any) error {
	_, err := r.results.Exec() // BEGIN
	if err == nil {
		err = r.results.QueryRow().Scan(dest...)
	}
	if closed := r.results.Close(); err == nil {
		err = closed
	}
	return err
}

// closing sends a statement along with the COMMIT after it. Where the statement fails the server passes
// over the COMMIT.
type closing struct {
	leasedb.DBTX
	conn     *pgx.Conn
	options  pgx.TxOptions
	answered bool // the statement has succeeded: an error is the COMMIT's
}

func (c *closing) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	b := &pgx.Batch{}
	b.Queue(sql, args...)
	b.Queue(cmp.Or(c.options.CommitQuery, "commit"))
	return closingRow{c, c.conn.SendBatch(ctx, b)}
}

type closingRow struct {
	closing *closing
	results pgx.BatchResults
}

func (r closingRow) Scan(dest ...any) error {
	err := r.results.QueryRow().Scan(dest...)
	if err == nil {
		r.closing.answered = true
		tag, failed := r.results.Exec() // COMMIT
		if err = failed; err == nil && tag.String() == "ROLLBACK" {
			err = pgx.ErrTxCommitRollback
		}
	}
	if closed := r.results.Close(); err == nil {
		err = closed
	}
	return err
}
