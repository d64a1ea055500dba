package profile

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
	"github.com/pglease/pglease/pglease"
)

// pairs acquires and releases, with history and without.
func (s *stage) pairs(ctx context.Context) ([]load, error) {
	var loads []load
	for _, kind := range []struct{ schema, name, title string }{
		{peers.HistorySchema, "", ""},
		{peers.PlainSchema, "-nohistory", ", history off"},
	} {
		t, err := s.session(ctx)
		if err != nil {
			return nil, err
		}
		client, err := s.client(ctx, t, pglease.Config{Schema: kind.schema})
		if err != nil {
			return nil, err
		}
		acquire := s.row("pairs", "acquire"+kind.name, "TryAcquire of a free resource"+kind.title)
		release := s.row("pairs", "release"+kind.name, "Release, nobody waits"+kind.title)
		loads = append(loads, load{cycle: func(ctx context.Context) error {
			leases := make([]*pglease.Lease, many)
			err := s.meter.times(ctx, acquire, t.pid, many, func(i int) (err error) {
				leases[i], err = client.TryAcquire(ctx, key("pairs", i))
				return err
			})
			if err != nil {
				return err
			}
			return s.meter.times(ctx, release, t.pid, many, func(i int) error { return leases[i].Release(ctx) })
		}})
	}
	return loads, nil
}

func key(of string, i int) string { return fmt.Sprintf("%s/%d", of, i) }

var errNotRefused = errors.New("a resource that another holds was not refused")

// refused asks for what another holds, by a client that did not and by one that did a moment ago.
func (s *stage) refused(ctx context.Context) ([]load, error) {
	t, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	config := pglease.Config{Schema: peers.HistorySchema, TTL: leaseTTL}
	if _, err := s.hold(ctx, t, "refused"); err != nil {
		return nil, err
	}
	first := s.row("refused", "refused", "TryAcquire, refused")
	again := s.row("refused", "refused-again", "TryAcquire, refused again")
	return []load{{cycle: func(ctx context.Context) error {
		client, err := pglease.New(ctx, t.Pool, config) // one that was refused nothing yet
		if err != nil {
			return err
		}
		defer closeNow(ctx, client)
		for _, row := range []string{first, again} {
			err := s.meter.times(ctx, row, t.pid, many, func(i int) error {
				_, err := client.TryAcquire(ctx, key("refused", i))
				if errors.Is(err, pglease.ErrHeld) {
					return nil
				}
				return errors.Join(errNotRefused, err)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}}}, nil
}

// hold has a client of its own hold resources.
func (s *stage) hold(ctx context.Context, t *session, of string) ([]*pglease.Lease, error) {
	client, err := s.client(ctx, t, pglease.Config{Schema: peers.HistorySchema})
	if err != nil {
		return nil, err
	}
	leases := make([]*pglease.Lease, many)
	for i := range leases {
		if leases[i], err = client.TryAcquire(ctx, key(of, i)); err != nil {
			return nil, err
		}
	}
	return leases, nil
}

// guard has the transaction of the limit guarded.
func (s *stage) guard(ctx context.Context) ([]load, error) {
	t, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	leases, err := s.hold(ctx, t, "guard")
	if err != nil {
		return nil, err
	}
	bare := s.row("guard", "transaction", "BEGIN, UPDATE, COMMIT: three round trips")
	once := s.row("guard", "guard", "BEGIN, Lease.Guard, UPDATE, COMMIT: four round trips")
	twice := s.row("guard", "guardedtx", "GuardedTx with the UPDATE: three round trips, two checks")
	return []load{{cycle: func(ctx context.Context) error {
		err := s.meter.times(ctx, bare, t.pid, many, func(i int) error {
			return inTx(ctx, t.Pool, func(tx pgx.Tx) error { return execute(ctx, tx, updateRow, i) })
		})
		if err != nil {
			return err
		}
		err = s.meter.times(ctx, once, t.pid, many, func(i int) error {
			return inTx(ctx, t.Pool, func(tx pgx.Tx) error {
				if err := leases[i].Guard(ctx, tx); err != nil {
					return err
				}
				return execute(ctx, tx, updateRow, i)
			})
		})
		if err != nil {
			return err
		}
		return s.meter.times(ctx, twice, t.pid, many, func(i int) error {
			return pglease.GuardedTx(ctx, t.Pool, leases[i], func(tx pgx.Tx) error { return execute(ctx, tx, updateRow, i) })
		})
	}}}, nil
}
