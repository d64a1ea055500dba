package profile

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The rows are about as wide as those of pgbench_accounts.
const (
	createLimit = `CREATE TABLE limit_row (id bigint PRIMARY KEY, n bigint NOT NULL, filler text NOT NULL) WITH (fillfactor = 70);
INSERT INTO limit_row SELECT i, 0, repeat('x', 84) FROM generate_series(0, 63) AS i`
	selectRow = `SELECT n FROM limit_row WHERE id = $1`
	updateRow = `UPDATE limit_row SET n = n + 1 WHERE id = $1`
)

// update is the row that most others are compared with.
const update = "update"

// bare is what everything is compared with.
func (s *stage) bare(ctx context.Context) ([]load, error) {
	t, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	one := s.row(limit, "select1", "SELECT 1")
	sel := s.row(limit, "select", "SELECT of a row by its key")
	s.row(limit, update, "UPDATE of a row by its key")
	return []load{{cycle: func(ctx context.Context) error {
		for _, row := range []struct {
			name string
			op   func(i int) error
		}{
			{one, func(int) error { return t.discard(ctx, "SELECT 1") }},
			{sel, func(i int) error { return t.discard(ctx, selectRow, i) }},
			{update, func(i int) error { return execute(ctx, t.Pool, updateRow, i) }},
		} {
			if err := s.meter.times(ctx, row.name, t.pid, many, row.op); err != nil {
				return err
			}
		}
		return nil
	}}}, nil
}

// discard reads the one number that a statement has.
func (t *session) discard(ctx context.Context, sql string, args ...any) error {
	var n int64
	return t.QueryRow(ctx, sql, args...).Scan(&n)
}

func execute(ctx context.Context, on executor, sql string, args ...any) error {
	_, err := on.Exec(ctx, sql, args...)
	return err
}

func inTx(ctx context.Context, pool *pgxpool.Pool, f func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, f)
}
