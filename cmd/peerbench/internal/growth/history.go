package growth

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
)

const historyTable = peers.HistorySchema + ".lease_history"

// historyResources is over how many resources the recorded tenures are spread.
const historyResources = 100_000

// addHistory gives fences below zero, which no grant has: the same resources are acquired meanwhile.
const addHistory = `INSERT INTO ` + historyTable + ` (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended)
SELECT 'growth/' || i % $3::int, -1 - i, 'growth', gen_random_uuid(), gen_random_uuid(), t, t + interval '1 minute', t + interval '30 seconds', 'released'
FROM generate_series($1::int, $2::int - 1) AS i, LATERAL (SELECT clock_timestamp() - interval '1 hour' AS t) AS past`

// history fills the record of ended tenures more and more.
func (s *stage) history(ctx context.Context, c *Curve) error {
	c.Title, c.X = fmt.Sprintf("Pairs of %d clients against the number of recorded tenures", clients), "rows of lease_history"
	c.Unit, c.Limit = pairUnit, pairLimit
	if err := s.fill(ctx, historyResources); err != nil {
		return err
	}
	ours, limit, end, err := s.pairs(ctx, func() int { return historyResources })
	if err != nil {
		return err
	}
	defer end()
	done := 0
	for _, n := range tenfold(leastRows, s.History) {
		if err := s.record(ctx, done, n); err != nil {
			return err
		}
		done = n
		if err := s.measure(ctx, c, n, ours, limit); err != nil {
			return err
		}
	}
	return nil
}

// record adds tenures. Indexes are made anew after that, which takes less time than to add to them.
func (s *stage) record(ctx context.Context, from, to int) error {
	return s.control.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		drop, create, err := indexes(ctx, conn)
		if err != nil {
			return err
		}
		const step = 1_000_000
		batch := append([]string{"SET session_replication_role = replica", "SET maintenance_work_mem = '1GB'"}, drop...)
		if err := execute(ctx, conn, batch); err != nil {
			return err
		}
		for ; from < to; from += step {
			if _, err := conn.Exec(ctx, addHistory, from, min(from+step, to), historyResources); err != nil {
				return err
			}
		}
		return execute(ctx, conn, append(create, "RESET session_replication_role", "VACUUM ANALYZE "+historyTable, "CHECKPOINT"))
	})
}

func execute(ctx context.Context, conn *pgxpool.Conn, statements []string) error {
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// indexes returns what drops those of the history and what makes them again, whatever they are.
func indexes(ctx context.Context, conn *pgxpool.Conn) (drop, create []string, err error) {
	rows, err := conn.Query(ctx, `SELECT
    CASE WHEN c.oid IS NULL THEN 'DROP INDEX ' || i.indexrelid::regclass ELSE format('ALTER TABLE %s DROP CONSTRAINT %I', i.indrelid::regclass, c.conname) END,
    CASE WHEN c.oid IS NULL THEN pg_get_indexdef(i.indexrelid) ELSE format('ALTER TABLE %s ADD CONSTRAINT %I %s', i.indrelid::regclass, c.conname, pg_get_constraintdef(c.oid)) END
FROM pg_index AS i LEFT JOIN pg_constraint AS c ON c.conindid = i.indexrelid AND c.contype IN ('p', 'u')
WHERE i.indrelid = $1::text::regclass`, historyTable)
	if err != nil {
		return nil, nil, err
	}
	var one, other string
	_, err = pgx.ForEachRow(rows, []any{&one, &other}, func() error {
		drop, create = append(drop, one), append(create, other)
		return nil
	})
	return drop, create, err
}
