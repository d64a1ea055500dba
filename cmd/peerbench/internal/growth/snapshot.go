package growth

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
)

// snapshot has few resources change hands while another transaction keeps every old row version
// alive: before it begins, while it is open, and after it has ended.
func (s *stage) snapshot(ctx context.Context, c *Curve) error {
	c.Title = fmt.Sprintf("Pairs of %d clients on a resource each, beside an open snapshot", clients)
	c.X, c.Unit, c.Limit = "seconds", pairUnit, pairLimit
	if err := s.fill(ctx, clients); err != nil {
		return err
	}
	ours, limit, end, err := s.pairs(ctx, func() int { return clients })
	if err != nil {
		return err
	}
	defer end()
	began := time.Now()
	for _, phase := range []struct {
		lasts time.Duration
		open  bool
	}{{s.Snapshot / 4, false}, {s.Snapshot, true}, {s.Snapshot / 4, false}} {
		fmt.Fprintf(s.Notice, "%s: open %v, for %v\n", c.Name, phase.open, phase.lasts)
		watch := func() error { return s.watch(ctx, c, began, phase.lasts, ours, limit) }
		if !phase.open {
			err = watch()
		} else {
			c.OpenAt = time.Since(began).Seconds()
			err = s.holding(ctx, watch)
			c.CloseAt = time.Since(began).Seconds()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// holding keeps a snapshot open for as long as f runs.
func (s *stage) holding(ctx context.Context, f func() error) error {
	return s.control.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SELECT count(*) FROM growth_row"); err != nil {
				return err
			}
			return f()
		})
	})
}

// mostMoments bounds the points of the time that a snapshot is open.
const mostMoments = 120

// watch adds a point for each turn of both loads.
func (s *stage) watch(ctx context.Context, c *Curve, began time.Time, lasts time.Duration, ours, limit measure.Load) error {
	moment := max(s.For, s.Snapshot/mostMoments)
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		all, err := measure.Turn(ctx, []measure.Load{ours, limit}, moment/2)
		if err != nil {
			return err
		}
		p := pointOf(time.Since(began).Seconds(), all[0], all[1])
		if p.Bytes, err = s.tableBytes(ctx); err != nil {
			return err
		}
		c.Points = append(c.Points, p)
	}
	return nil
}
