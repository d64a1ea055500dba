package authority

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// conn is what statements run on: a pool or one connection.
type conn interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// readCommitted runs each statement at READ COMMITTED. Where that is the default nothing is added.
// A stronger default is noticed by the first serialization failure; from then on each statement
// travels between BEGIN and COMMIT in one round trip, which pins its isolation level.
type readCommitted struct {
	conn
	pin *atomic.Bool
}

// legible has the session write times and intervals as pgx reads them where they come as text, as
// they do in QueryExecModeExec and in the simple protocol.
const legible = "SELECT set_config('DateStyle', 'ISO', true), set_config('IntervalStyle', 'postgres', true)"

// isLegible tells whether it does so anyway. The server reports both settings with each change.
func isLegible(c conn) bool {
	direct, ok := c.(*pgx.Conn)
	if !ok {
		return true
	}
	date, interval := direct.PgConn().ParameterStatus("DateStyle"), direct.PgConn().ParameterStatus("IntervalStyle")
	return (date == "" || strings.HasPrefix(date, "ISO")) && (interval == "" || interval == "postgres")
}

func (r readCommitted) bare() bool { return !r.pin.Load() && isLegible(r.conn) }

func (r readCommitted) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if r.bare() {
		return r.conn.Query(ctx, sql, args...)
	}
	b := &pgx.Batch{}
	b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	if !isLegible(r.conn) {
		b.Queue(legible)
	}
	before := b.Len()
	b.Queue(sql, args...)
	b.Queue("COMMIT")
	results := r.SendBatch(ctx, b)
	fail := func(err error) error {
		err = errors.Join(err, ignoreSame(err, results.Close()))
		r.rollBack(ctx)
		return err
	}
	for range before {
		if _, err := results.Exec(); err != nil {
			return nil, fail(err)
		}
	}
	rows, err := results.Query()
	if err != nil {
		return nil, fail(err)
	}
	return &pinnedRows{Rows: rows, results: results, failed: func() { r.rollBack(ctx) }}, nil
}

// rollBack ends the transaction of a statement that has failed: the server skipped its COMMIT, and would
// refuse the next statement of this session.
func (r readCommitted) rollBack(ctx context.Context) {
	if direct, ok := r.conn.(*pgx.Conn); ok && direct.PgConn().TxStatus() == 'E' {
		_, _ = direct.Exec(ctx, "ROLLBACK") // a session that cannot is given up, by its TxStatus
	}
}

func (r readCommitted) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if r.bare() {
		return r.conn.QueryRow(ctx, sql, args...)
	}
	rows, err := r.Query(ctx, sql, args...)
	return pinnedRow{rows: rows, err: err}
}

func ignoreSame(first, second error) error {
	if errors.Is(second, first) || (second != nil && second.Error() == first.Error()) {
		return nil
	}
	return second
}

// pinnedRows ends the batch, and so learns of the commit, as soon as the rows are read.
type pinnedRows struct {
	pgx.Rows
	results pgx.BatchResults
	failed  func()
	ended   bool
	err     error
}

func (r *pinnedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *pinnedRows) Close() {
	if r.ended {
		return
	}
	r.ended = true
	r.Rows.Close()
	if r.err = r.Rows.Err(); r.err == nil {
		_, r.err = r.results.Exec() // COMMIT
	}
	if err := r.results.Close(); r.err == nil {
		r.err = err
	}
	if r.err != nil {
		r.failed()
	}
}

func (r *pinnedRows) Err() error {
	if r.ended {
		return r.err
	}
	return r.Rows.Err()
}

// pinnedRow is the first of the rows, as pgx.Row.
type pinnedRow struct {
	rows pgx.Rows
	err  error
}

func (r pinnedRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	scanned := r.rows.Scan(dest...)
	r.rows.Close()
	if err := r.rows.Err(); err != nil {
		return err
	}
	return scanned
}
