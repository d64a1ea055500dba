package pglease

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// errNotYours keeps the function that was given a guarded transaction from ending it without the
// last check.
var errNotYours = errors.New("GuardedTx ends the transaction itself, and the function tried to or did")

// guardedTx is the transaction that GuardedTx hands on, or a savepoint in it: each statement first
// asks whether the lease is still to be trusted.
type guardedTx struct {
	pgx.Tx
	guard *txGuard
	top   bool
}

// Commit implements pgx.Tx for savepoints.
func (t guardedTx) Commit(ctx context.Context) error {
	if t.top {
		return errNotYours
	}
	if t.guard.closed {
		return pgx.ErrTxClosed
	}
	return t.Tx.Commit(ctx)
}

// Rollback implements pgx.Tx for savepoints. The bounds that were set since the savepoint go with
// it, so the next statement sets them anew; the row was locked before it and stays so. What was to be
// rolled back as a whole is never committed, though few look at this error.
func (t guardedTx) Rollback(ctx context.Context) error {
	if t.top {
		t.guard.givenUp = true
		return errNotYours
	}
	if t.guard.closed {
		return pgx.ErrTxClosed
	}
	t.guard.bounded = time.Time{}
	return t.Tx.Rollback(ctx)
}

// Begin implements pgx.Tx: it makes a savepoint.
func (t guardedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.guard.ready(ctx); err != nil {
		return nil, err
	}
	tx, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return guardedTx{Tx: tx, guard: t.guard}, nil
}

// Exec implements pgx.Tx.
func (t guardedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.guard.ready(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.Tx.Exec(ctx, sql, args...)
}

// Query implements pgx.Tx.
func (t guardedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.guard.ready(ctx); err != nil {
		return failedRows{err}, err // as pgx does, for those who look at the rows' error alone
	}
	return t.Tx.Query(ctx, sql, args...)
}

// QueryRow implements pgx.Tx.
func (t guardedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.guard.ready(ctx); err != nil {
		return failedRows{err}
	}
	return t.Tx.QueryRow(ctx, sql, args...)
}

// SendBatch implements pgx.Tx.
func (t guardedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.guard.ready(ctx); err != nil {
		return failedBatch{err}
	}
	return t.Tx.SendBatch(ctx, b)
}

// CopyFrom implements pgx.Tx.
func (t guardedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := t.guard.ready(ctx); err != nil {
		return 0, err
	}
	if t.guard.lease != nil {
		rows = &guardedRows{CopyFromSource: rows, lease: t.guard.lease}
	}
	return t.Tx.CopyFrom(ctx, table, columns, rows)
}

// Prepare implements pgx.Tx.
func (t guardedTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if t.guard.closed {
		return nil, pgx.ErrTxClosed
	}
	return t.Tx.Prepare(ctx, name, sql)
}

// LargeObjects implements pgx.Tx.
func (t guardedTx) LargeObjects() pgx.LargeObjects {
	t.guard.objects = true
	return t.Tx.LargeObjects()
}

// guardedRows end a COPY at the loss of the lease: its source may take as long as it likes.
type guardedRows struct {
	pgx.CopyFromSource
	lease *Lease
	loss  error
}

// Next implements pgx.CopyFromSource.
func (r *guardedRows) Next() bool {
	more := r.CopyFromSource.Next()
	r.loss = r.lease.Err()
	return more && r.loss == nil
}

// Err implements pgx.CopyFromSource.
func (r *guardedRows) Err() error {
	if r.loss != nil {
		return r.loss
	}
	return r.CopyFromSource.Err()
}

// failedRows are the rows of a statement that was not sent.
type failedRows struct{ err error }

func (failedRows) Close()                                       {}
func (r failedRows) Err() error                                 { return r.err }
func (failedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (failedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (failedRows) Next() bool                                   { return false }
func (r failedRows) Scan(...any) error                          { return r.err }
func (r failedRows) Values() ([]any, error)                     { return nil, r.err }
func (failedRows) RawValues() [][]byte                          { return nil }
func (failedRows) Conn() *pgx.Conn                              { return nil }
func (failedRows) TypeMap() *pgtype.Map                         { return nil }

// failedBatch are the results of a batch that was not sent.
type failedBatch struct{ err error }

func (b failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b failedBatch) Query() (pgx.Rows, error)         { return failedRows(b), b.err }
func (b failedBatch) QueryRow() pgx.Row                { return failedRows(b) }
func (b failedBatch) Close() error                     { return b.err }
func (failedBatch) Tx() pgx.Tx                         { return nil }
