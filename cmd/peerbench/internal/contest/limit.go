package contest

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
)

// The row is about as wide as one of pgbench_accounts.
const createLimit = `CREATE TABLE IF NOT EXISTS limit_row (id bigint PRIMARY KEY, n bigint NOT NULL, filler text NOT NULL) WITH (fillfactor = 70);
INSERT INTO limit_row SELECT i, 0, repeat('x', 84) FROM generate_series(0, 63) AS i ON CONFLICT DO NOTHING`

// Limit has workers with a connection each, which send so many UPDATEs for one operation.
func Limit(ctx context.Context, url string, workers, each int) (measure.Load, func(), error) {
	conns := make([]*pgx.Conn, workers)
	end := func() {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close(context.WithoutCancel(ctx))
			}
		}
	}
	for i := range conns {
		var err error
		if conns[i], err = pgx.Connect(ctx, url); err != nil {
			end()
			return measure.Load{}, nil, err
		}
	}
	if _, err := conns[0].Exec(ctx, createLimit); err != nil {
		end()
		return measure.Load{}, nil, err
	}
	count := &measure.Counter{}
	run := measure.Closed(workers, func(ctx context.Context, worker int) (int, error) {
		for range each {
			count.Add(1)
			if _, err := conns[worker].Exec(ctx, "UPDATE limit_row SET n = n + 1 WHERE id = $1", worker); err != nil {
				return 0, err
			}
		}
		return 1, nil
	})
	return measure.Load{Name: "limit", Run: run, Spent: count.Count}, end, nil
}
