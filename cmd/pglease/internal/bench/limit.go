package bench

import (
	"context"
)

const (
	// The row is about as wide as one of pgbench_accounts.
	createRows = `CREATE TABLE %s.bench_row (id bigint PRIMARY KEY, n bigint NOT NULL, filler text NOT NULL) WITH (fillfactor = 70)`
	insertRows = `INSERT INTO %s.bench_row SELECT i, 0, repeat('x', 84) FROM generate_series(0, $1 - 1) AS i`
	updateRow  = `UPDATE %s.bench_row SET n = n + 1 WHERE id = $1`
)

// rows makes the table that UPDATEs are measured on.
func (s *stage) rows(ctx context.Context, n int) error {
	if err := s.execute(ctx, createRows); err != nil {
		return err
	}
	return s.execute(ctx, insertRows, n)
}

// updates is the limit: each worker has a connection of its own and sends so many bare UPDATEs for
// one operation, each a transaction, prepared. They change a row of the worker's own, or all the
// same.
func (s *stage) updates(ctx context.Context, workers, each int, same bool) (load, error) {
	if err := s.rows(ctx, workers); err != nil {
		return load{}, err
	}
	conns, err := s.connections(ctx, workers)
	if err != nil {
		return load{}, err
	}
	sql := s.sql(updateRow)
	return load{run: closed(workers, func(ctx context.Context, worker int) error {
		row := worker
		if same {
			row = 0
		}
		for range each {
			if _, err := conns[worker].Exec(ctx, sql, row); err != nil {
				return err
			}
		}
		return nil
	})}, nil
}

// inTurn is the limit of a line, whose hand-overs come one after another, each over another connection
// than the last: so do its bare UPDATEs. All are of one row, as a line has one resource.
func (s *stage) inTurn(ctx context.Context, connections int) (load, error) {
	if err := s.rows(ctx, 1); err != nil {
		return load{}, err
	}
	conns, err := s.connections(ctx, connections)
	if err != nil {
		return load{}, err
	}
	sql, sent := s.sql(updateRow), 0
	return load{run: closed(1, func(ctx context.Context, _ int) error {
		conn := conns[sent%len(conns)]
		sent++
		_, err := conn.Exec(ctx, sql, 0)
		return err
	})}, nil
}
