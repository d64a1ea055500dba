package contest

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
)

// The row is about as wide as one of pgbench_accounts.
const createLimit = `CREATE TABLE IF NOT EXISTS limit_row (id bigint PRIMARY KEY, n bigint NOT NULL, filler text NOT NULL) WITH (fillfactor = 70);
INSERT INTO limit_row SELECT i, 0, repeat('x', 84) FROM generate_series(0, 63) AS i ON CONFLICT DO NOTHING`

// Limit has workers with a connection each, which send so many UPDATEs for one operation.
func Limit(ctx context.Context, url string, workers, each int) (measure.Load, func(), error) {
	u, err := openUpdates(ctx, url, workers)
	if err != nil {
		return measure.Load{}, nil, err
	}
	return u.load(measure.Closed(workers, func(ctx context.Context, worker int) (int, error) {
		for range each {
			if err := u.send(ctx, worker, worker); err != nil {
				return 0, err
			}
		}
		return 1, nil
	})), u.end, nil
}

// LimitInTurn has connections that each send one UPDATE when the one before has sent its own, all of
// the same row: as hand-overs of a line go from one process to another, one at a time.
func LimitInTurn(ctx context.Context, url string, connections int) (measure.Load, func(), error) {
	u, err := openUpdates(ctx, url, connections)
	if err != nil {
		return measure.Load{}, nil, err
	}
	sent := 0
	return u.load(measure.Closed(1, func(ctx context.Context, _ int) (int, error) {
		at := sent % connections
		sent++
		return 1, u.send(ctx, at, 0)
	})), u.end, nil
}

// updates are bare UPDATEs of a row, each a transaction, prepared.
type updates struct {
	conns []*pgx.Conn
	count measure.Counter
	end   func()
}

func openUpdates(ctx context.Context, url string, connections int) (*updates, error) {
	u := &updates{conns: make([]*pgx.Conn, connections)}
	u.end = func() {
		for _, conn := range u.conns {
			if conn != nil {
				_ = conn.Close(context.WithoutCancel(ctx))
			}
		}
	}
	for i := range u.conns {
		var err error
		if u.conns[i], err = pgx.Connect(ctx, url); err != nil {
			u.end()
			return nil, err
		}
	}
	if _, err := u.conns[0].Exec(ctx, createLimit); err != nil {
		u.end()
		return nil, err
	}
	return u, nil
}

func (u *updates) load(run func(context.Context, time.Duration) (measure.Sample, error)) measure.Load {
	return measure.Load{Name: limitName, Run: run, Spent: u.count.Count}
}

func (u *updates) send(ctx context.Context, connection, row int) error {
	u.count.Add(1)
	_, err := u.conns[connection].Exec(ctx, "UPDATE limit_row SET n = n + 1 WHERE id = $1", row)
	return err
}
