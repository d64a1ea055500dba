package bench

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
)

var guard = Work{
	Name:    "guard",
	Summary: "UPDATE a row in a transaction that Lease.Guard guards",
	unit:    "guarded transaction",
	limit:   "the same transaction without a guard",
	prepare: prepareGuard,
}

// prepareGuard gives each worker a lease and a row. All transactions take their connection from a pool,
// as an application's do. Lease.Guard checks the lease once and has a round trip for that; GuardedTx
// checks it again as the last thing before the commit, and has none.
func prepareGuard(ctx context.Context, s *stage) (loads, error) {
	pool, err := s.pool(ctx, s.options.Clients, nil)
	if err != nil {
		return loads{}, err
	}
	leases, err := s.leases(ctx)
	if err != nil {
		return loads{}, err
	}
	if err := s.rows(ctx, s.options.Clients); err != nil {
		return loads{}, err
	}
	bare, err := s.pool(ctx, s.options.Clients, uncounted{})
	update := func(ctx context.Context, tx pgx.Tx, worker int) error {
		_, err := tx.Exec(ctx, s.sql(updateRow), worker)
		return err
	}
	return loads{
		ours: load{run: closed(len(leases), func(ctx context.Context, worker int) error {
			return guarded(ctx, pool, leases[worker], func(tx pgx.Tx) error { return update(ctx, tx, worker) })
		})},
		limit: load{run: closed(len(leases), func(ctx context.Context, worker int) error {
			return pgx.BeginTxFunc(ctx, bare, readCommitted, func(tx pgx.Tx) error { return update(ctx, tx, worker) })
		})},
		also: load{run: closed(len(leases), func(ctx context.Context, worker int) error {
			return pglease.GuardedTx(ctx, pool, leases[worker], func(tx pgx.Tx) error { return update(ctx, tx, worker) })
		})},
		alsoName: "the same by GuardedTx",
	}, err
}

var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

func guarded(ctx context.Context, pool *pgxpool.Pool, lease *pglease.Lease, work func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, pool, readCommitted, func(tx pgx.Tx) error {
		if err := lease.Guard(ctx, tx); err != nil {
			return err
		}
		return work(tx)
	})
}

// leases acquires one for each worker.
func (s *stage) leases(ctx context.Context) ([]*pglease.Lease, error) {
	client, err := s.shared(ctx, leaseTTL)
	if err != nil {
		return nil, err
	}
	leases := make([]*pglease.Lease, s.options.Clients)
	for i := range leases {
		if leases[i], err = client.TryAcquire(ctx, resource(i)); err != nil {
			return nil, err
		}
	}
	return leases, nil
}
