package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/pglease/pglease/internal/waitline"
	"github.com/pglease/pglease/pglease"
)

// prepareLine fills a line whose places are spread over the clients, so that with more than one
// each hand-over goes from one process, as it were, to another.
func prepareLine(ctx context.Context, s *stage) (loads, error) {
	waiters := s.options.Waiters
	l := waitline.New(ctx, resource(0), waiters)
	clients, err := s.processes(ctx, 4, pglease.Config{TTL: pglease.DefaultTTL, MaxWaiters: waiters + 1, MaxWaiting: waiters + 1, Observer: l})
	s.atEnd(func(ctx context.Context) error { l.End(ctx); return nil }) // before the clients
	if err != nil {
		return loads{}, err
	}
	if err := l.Fill(ctx, clients); err != nil {
		return loads{}, err
	}
	limit, err := s.inTurn(ctx, len(clients))
	return loads{ours: load{run: served(l)}, limit: limit, limitName: inTurnName(len(clients))}, err
}

func inTurnName(connections int) string {
	if connections == 1 {
		return "one UPDATE by one connection"
	}
	return fmt.Sprintf("one UPDATE, by each of %d connections in turn", connections)
}

// served hands over, one after another, for about d. The time in which whoever has released goes to the
// end of the line does not count.
func served(l *waitline.Line) runner {
	return func(ctx context.Context, d time.Duration) (s sample, err error) {
		for end := time.Now().Add(d); s.ops == 0 || time.Now().Before(end); {
			took, err := l.HandOver(ctx)
			if err != nil {
				return s, err
			}
			s.ops, s.timed = s.ops+1, s.timed+1
			s.elapsed += took
			s.latencies = append(s.latencies, took)
		}
		return s, nil
	}
}
