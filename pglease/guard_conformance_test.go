package pglease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/fencetest"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// A table without any watermark, written in guarded transactions, keeps the order of the grants. The
// order of its rows is that in which they were written, as the lease's row excludes all but one owner;
// among the writes of one owner, which the guard does not order, n is drawn under a lock.
func TestGuardConforms(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(t *testing.T) fencetest.Resource {
		t.Helper()
		pool := pgleasetest.Pool(t)
		run(t, pool, `CREATE TABLE effect (n bigint GENERATED ALWAYS AS IDENTITY, command text UNIQUE, fence bigint, lease_id uuid)`)
		client := newClient(t, pool, pglease.Config{})
		granted := false
		write := func(crash bool) func(context.Context, fence.Token, fencetest.Command) error {
			return func(ctx context.Context, token fence.Token, c fencetest.Command) error {
				err := pglease.GuardedTokenTx(ctx, pool, token, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, `INSERT INTO effect (command, fence, lease_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
						c.ID, token.Fence(), token.LeaseID().String())
					if err == nil && crash {
						err = fmt.Errorf("died: %w", tx.Conn().PgConn().Conn().Close())
					}
					return err
				})
				// The guard refuses from the expiry on, before there is a newer fence to be below of.
				if errors.Is(err, pglease.ErrLost) && !fence.IsStale(err) {
					err = errors.Join(err, fence.ErrStaleOwner)
				}
				return err
			}
		}
		return fencetest.Resource{
			Write: write(false), Crash: write(true), Repeats: true, KnowsGrants: true,
			// A takeover: the lease before has expired, and its guarded transactions are waited for.
			Grant: func(ctx context.Context) (fence.Token, error) {
				if granted {
					pgleasetest.ExpireLease(t, pool, fencetest.DefaultName) //nolint:contextcheck // it has the test's
				}
				granted = true
				for {
					lease, err := client.TryAcquire(ctx, fencetest.DefaultName)
					if err == nil {
						return lease.Token(), nil
					}
					if !errors.Is(err, pglease.ErrHeld) {
						return fence.Token{}, err
					}
				}
			},
			History: func(ctx context.Context) ([]fencetest.Entry, error) {
				rows, err := pool.Query(ctx, `SELECT command, fence, lease_id FROM effect ORDER BY n`)
				if err != nil {
					return nil, err
				}
				return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e fencetest.Entry, err error) {
					var lease pgtype.UUID
					err = row.Scan(&e.Command, &e.Fence, &lease)
					e.LeaseID = lease.Bytes
					return e, err
				})
			},
		}
	})
}
