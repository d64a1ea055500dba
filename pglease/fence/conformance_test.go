package fence_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/fencetest"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// effects keeps what took effect, in order: the identity is drawn under the lock of the watermark.
const effects = `CREATE TABLE effect (n bigint GENERATED ALWAYS AS IDENTITY, command text, fence bigint, lease_id uuid)`

func history(pool *pgxpool.Pool) func(context.Context) ([]fencetest.Entry, error) {
	return func(ctx context.Context) ([]fencetest.Entry, error) {
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
	}
}

// die ends the process's part of a transaction as a kill does: the server is told nothing.
func die(tx pgx.Tx) error { return tx.Conn().PgConn().Conn().Close() }

func newPool(tb testing.TB, statements ...string) *pgxpool.Pool {
	tb.Helper()
	pool := pgleasetest.Pool(tb, migrations.Fence)
	for _, sql := range statements {
		mustExec(tb, pool, sql)
	}
	return pool
}

func TestWatermarkConforms(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(t *testing.T) fencetest.Resource {
		t.Helper()
		pool, w := newPool(t, effects), newWatermarks(t)
		write := func(crash bool) func(context.Context, fence.Token, fencetest.Command) error {
			return func(ctx context.Context, token fence.Token, c fencetest.Command) error {
				_, err := w.Apply(ctx, pool, token, fence.Op{
					Key: c.ID, Sequence: c.Sequence,
					Apply: func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
						if crash {
							return nil, fmt.Errorf("died: %w", die(tx))
						}
						_, err := tx.Exec(ctx, `INSERT INTO effect (command, fence, lease_id) VALUES ($1, $2, $3)`,
							c.ID, token.Fence(), token.LeaseID().String())
						return nil, err
					},
				})
				return err
			}
		}
		return fencetest.Resource{
			Write: write(false), Crash: write(true), History: history(pool),
			Establish: func(ctx context.Context, token fence.Token) error { return w.Establish(ctx, pool, token) },
			Sequences: true, Repeats: true,
		}
	})
}

// The table of a user: a row that has a watermark of its own, and a trigger that keeps its history.
const (
	devices = `CREATE TABLE device (device_id text PRIMARY KEY, setting text, fence bigint, lease_id uuid)`
	record  = `CREATE FUNCTION record() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO effect (command, fence, lease_id) VALUES (NEW.setting, NEW.fence, NEW.lease_id); RETURN NULL; END $$`
	recorder = `CREATE TRIGGER a_record AFTER UPDATE ON device FOR EACH ROW
		WHEN (NEW.setting IS DISTINCT FROM OLD.setting) EXECUTE FUNCTION record()`
	untouched = `INSERT INTO device VALUES ('` + fencetest.DefaultName + `')`
)

func TestColumnConforms(t *testing.T) {
	t.Parallel()
	for _, lease := range []string{"lease_id", ""} {
		t.Run("lease column: "+lease, func(t *testing.T) {
			t.Parallel()
			fencetest.Run(t, func(t *testing.T) fencetest.Resource {
				t.Helper()
				pool := newPool(t, effects, devices, record, recorder, untouched)
				column := fence.Column{Table: pgx.Identifier{"device"}, Key: "device_id", Fence: "fence", Lease: lease}
				change := func(c fencetest.Command) fence.Change {
					return fence.Change{Set: "setting = $1", Args: []any{c.ID}}
				}
				return fencetest.Resource{
					Write: func(ctx context.Context, token fence.Token, c fencetest.Command) error {
						return column.Update(ctx, pool, token, change(c))
					},
					Crash: func(ctx context.Context, token fence.Token, c fencetest.Command) error {
						return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
							if err := column.Update(ctx, tx, token, change(c)); err != nil {
								return err
							}
							return fmt.Errorf("died: %w", die(tx))
						})
					},
					Establish: func(ctx context.Context, token fence.Token) error { return column.Establish(ctx, pool, token, nil) },
					History:   history(pool),
					NoLeaseID: lease == "",
				}
			})
		})
	}
}

// Writers in any language, who know no more than that they carry the fence in a column.
func TestFencedTableConforms(t *testing.T) {
	t.Parallel()
	for _, lease := range []string{"'lease_id'", "NULL"} {
		t.Run("lease column: "+lease, func(t *testing.T) {
			t.Parallel()
			fencetest.Run(t, func(t *testing.T) fencetest.Resource {
				t.Helper()
				pool := newPool(t, effects, devices, record, recorder, untouched,
					`SELECT pglease.fence_table('device', 'device_id', 'fence', `+lease+`)`)
				write := func(ctx context.Context, db fence.DB, token fence.Token, set string) error {
					_, err := db.Exec(ctx, `UPDATE device SET setting = coalesce($1, setting), fence = $2, lease_id = $3 WHERE device_id = $4`,
						pgtype.Text{String: set, Valid: set != ""}, token.Fence(), token.LeaseID().String(), token.Resource())
					return err
				}
				return fencetest.Resource{
					Write: func(ctx context.Context, token fence.Token, c fencetest.Command) error {
						return write(ctx, pool, token, c.ID)
					},
					Crash: func(ctx context.Context, token fence.Token, c fencetest.Command) error {
						return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
							if err := write(ctx, tx, token, c.ID); err != nil {
								return err
							}
							return fmt.Errorf("died: %w", die(tx))
						})
					},
					Establish: func(ctx context.Context, token fence.Token) error { return write(ctx, pool, token, "") },
					History:   history(pool),
					NoLeaseID: lease == "NULL",
				}
			})
		})
	}
}
