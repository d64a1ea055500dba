package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglease/pglease/pglease"
)

var pairs = Work{
	Name:    "pairs",
	Summary: "acquire and release a resource of one's own",
	unit:    "acquire and release",
	limit:   "two UPDATEs of a row of one's own",
	prepare: preparePairs,
}

func preparePairs(ctx context.Context, s *stage) (loads, error) {
	client, err := s.shared(ctx, pglease.DefaultTTL)
	if err != nil {
		return loads{}, err
	}
	limit, err := s.updates(ctx, s.options.Clients, 2, false)
	return loads{limit: limit, ours: load{run: closed(s.options.Clients, func(ctx context.Context, worker int) error {
		lease, err := client.TryAcquire(ctx, resource(worker))
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	})}}, err
}

var refused = Work{
	Name:    "refused",
	Summary: "ask again for a resource that another holds",
	unit:    "refused TryAcquire",
	limit:   "one UPDATE of a row of one's own",
	prepare: prepareRefused,
}

// prepareRefused also measures the least that asking can cost: a bare SELECT of the same row.
func prepareRefused(ctx context.Context, s *stage) (loads, error) {
	client, err := s.shared(ctx, leaseTTL)
	if err != nil {
		return loads{}, err
	}
	if _, err := client.TryAcquire(ctx, resource(0)); err != nil {
		return loads{}, err
	}
	limit, err := s.updates(ctx, s.options.Clients, 1, false)
	if err != nil {
		return loads{}, err
	}
	conns, err := s.connections(ctx, s.options.Clients)
	sql := s.sql(selectOwner)
	return loads{
		ours: load{run: closed(s.options.Clients, func(ctx context.Context, _ int) error {
			_, err := client.TryAcquire(ctx, resource(0))
			if errors.Is(err, pglease.ErrHeld) {
				return nil
			}
			return errors.Join(errors.New("a held resource was not refused"), err)
		})},
		limit: limit,
		also: load{run: closed(s.options.Clients, func(ctx context.Context, worker int) error {
			var owner string
			return conns[worker].QueryRow(ctx, sql, resource(0)).Scan(&owner)
		})},
		alsoName: "a bare SELECT of the lease's row",
	}, err
}

const selectOwner = `SELECT owner_id FROM %s.resource_lease WHERE resource_id = $1`

// shared returns one client for all, with a connection for each.
func (s *stage) shared(ctx context.Context, ttl time.Duration) (*pglease.Client, error) {
	pool, err := s.pool(ctx, s.options.Clients, nil)
	if err != nil {
		return nil, err
	}
	return s.client(ctx, pool, pglease.Config{TTL: ttl})
}

func resource(n int) string { return fmt.Sprintf("bench/%d", n) }
