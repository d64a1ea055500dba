package growth

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
	"github.com/pglease/pglease/pglease"
)

// Rows are made without their triggers, as the triggers would leave them.
const addResources = `INSERT INTO ` + peers.HistorySchema + `.resource_lease (resource_id, owner_id, lease_id, request_id, fence, acquired_at, expires_at, ttl, ended_at)
SELECT 'growth/' || i, 'growth', gen_random_uuid(), gen_random_uuid(), 1, clock_timestamp(), clock_timestamp() + interval '1 minute', '1 minute', clock_timestamp()
FROM generate_series($1::int, $2::int - 1) AS i ON CONFLICT DO NOTHING`

// The rows of the limit are about as wide as one of pgbench_accounts.
const (
	createRows = `CREATE TABLE IF NOT EXISTS growth_row (id bigint PRIMARY KEY, n bigint NOT NULL, filler text NOT NULL) WITH (fillfactor = 70)`
	addRows    = `INSERT INTO growth_row SELECT i, 0, repeat('x', 84) FROM generate_series($1::int, $2::int - 1) AS i ON CONFLICT DO NOTHING`
	updateRow  = `UPDATE growth_row SET n = n + 1 WHERE id = $1`
)

// fill makes so many resources and rows, where there are fewer.
func (s *stage) fill(ctx context.Context, n int) error {
	conn, err := s.control.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	for _, sql := range []string{"SET session_replication_role = replica", createRows} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	for _, sql := range []string{addResources, addRows} {
		if _, err := conn.Exec(ctx, sql, 0, n); err != nil {
			return err
		}
	}
	for _, sql := range []string{"RESET session_replication_role", "VACUUM ANALYZE " + peers.HistorySchema + ".resource_lease", "VACUUM ANALYZE growth_row", "CHECKPOINT"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// pairs are acquires and releases of resources by chance among n, and beside them two UPDATEs of
// rows by chance among as many.
func (s *stage) pairs(ctx context.Context, n func() int) (ours, limit measure.Load, end func(), err error) {
	pool, err := peers.Pool(ctx, s.server.Address, clients, &measure.Counter{})
	if err != nil {
		return ours, limit, nil, err
	}
	client, err := pglease.New(ctx, pool, pglease.Config{Schema: peers.HistorySchema})
	if err != nil {
		pool.Close()
		return ours, limit, nil, err
	}
	ours = measure.Load{Name: "pairs", Run: measure.Closed(clients, func(ctx context.Context, worker int) (int, error) {
		lease, err := client.TryAcquire(ctx, fmt.Sprintf("growth/%d", own(n(), worker)))
		if err != nil {
			return 0, err
		}
		return 1, lease.Release(ctx)
	})}
	limit = measure.Load{Name: "limit", Run: measure.Closed(clients, func(ctx context.Context, worker int) (int, error) {
		for range 2 {
			if _, err := pool.Exec(ctx, updateRow, own(n(), worker)); err != nil {
				return 0, err
			}
		}
		return 1, nil
	})}
	return ours, limit, func() { _ = client.Close(context.WithoutCancel(ctx)); pool.Close() }, nil
}

// own is a number below n, by chance, that no other worker gets.
func own(n, worker int) int { return rand.IntN(n/clients)*clients + worker }

const (
	pairUnit  = "acquire and release"
	pairLimit = "two single-row UPDATEs"
)

func (s *stage) resources(ctx context.Context, c *Curve) error {
	c.Title, c.X = fmt.Sprintf("Pairs of %d clients against the number of resources", clients), "resources"
	c.Unit, c.Limit = pairUnit, pairLimit
	var n int
	ours, limit, end, err := s.pairs(ctx, func() int { return n })
	if err != nil {
		return err
	}
	defer end()
	for _, n = range tenfold(leastRows, s.Resources) {
		if err := s.fill(ctx, n); err != nil {
			return err
		}
		if err := s.measure(ctx, c, n, ours, limit); err != nil {
			return err
		}
	}
	return nil
}
