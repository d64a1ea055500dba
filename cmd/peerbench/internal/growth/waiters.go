package growth

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pglease/pglease/cmd/peerbench/internal/contest"
	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
	"github.com/pglease/pglease/internal/waitline"
	"github.com/pglease/pglease/pglease"
)

// waiters has longer and longer lines for one resource, spread over processes.
func (s *stage) waiters(ctx context.Context, c *Curve) error {
	c.Title, c.X = "Hand-over against the length of the line", "waiters"
	c.Unit, c.Limit, c.latency = "hand-over", "one UPDATE", true
	c.LimitBy = "by each of as many connections as processes, in turn"
	for _, n := range halfSteps(tenfold(1, s.Waiters)) {
		if err := s.line(ctx, c, n); err != nil {
			return err
		}
	}
	return nil
}

// line measures one of so many waiters.
func (s *stage) line(ctx context.Context, c *Curve, n int) error {
	l := waitline.New(ctx, fmt.Sprintf("line/%d", n), n)
	ends := []func(){}
	defer func() {
		l.End(context.WithoutCancel(ctx))
		for _, end := range slices.Backward(ends) {
			end()
		}
	}()
	config := pglease.Config{Schema: peers.HistorySchema, MaxWaiters: n + 1, MaxWaiting: n + 1, TTL: time.Hour, Observer: l}
	clients := make([]*pglease.Client, min(processes, n+1))
	for i := range clients {
		pool, err := peers.Pool(ctx, s.server.Address, 4, &measure.Counter{})
		if err != nil {
			return err
		}
		ends = append(ends, pool.Close)
		if clients[i], err = pglease.New(ctx, pool, config); err != nil {
			return err
		}
		ends = append(ends, func() { _ = clients[i].Close(context.WithoutCancel(ctx)) })
	}
	if err := l.Fill(ctx, clients); err != nil {
		return err
	}
	limit, end, err := contest.LimitInTurn(ctx, s.server.Address, len(clients))
	if err != nil {
		return err
	}
	ends = append(ends, end)
	return s.measure(ctx, c, n, measure.Load{Name: "hand-over", Run: served(l)}, limit)
}

// served hands over, one after another, for about d. The time in which whoever has released goes to the
// end of the line does not count.
func served(l *waitline.Line) func(context.Context, time.Duration) (measure.Sample, error) {
	return func(ctx context.Context, d time.Duration) (s measure.Sample, err error) {
		for end := time.Now().Add(d); s.Ops == 0 || time.Now().Before(end); {
			took, err := l.HandOver(ctx)
			if err != nil {
				return s, err
			}
			s.Ops, s.Timed, s.Elapsed = s.Ops+1, s.Timed+1, s.Elapsed+took
			s.Latencies = append(s.Latencies, took)
		}
		return s, nil
	}
}
