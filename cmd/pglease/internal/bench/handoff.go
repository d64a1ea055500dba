package bench

import (
	"context"
	"sync"
	"time"

	"github.com/pglease/pglease/pglease"
)

var handoff = Work{
	Name:    "handoff",
	Summary: "from the call of a release until the next holder has its lease",
	unit:    "hand-over",
	prepare: prepareHandoff,
}

func prepareHandoff(ctx context.Context, s *stage) (loads, error) {
	if s.options.Waiters > 0 {
		return prepareLine(ctx, s)
	}
	return prepareTurns(ctx, s)
}

// processes returns clients that share nothing, as if each were in a process of its own.
func (s *stage) processes(ctx context.Context, conns int, config pglease.Config) ([]*pglease.Client, error) {
	config.DirectWake = s.options.DirectWake
	clients := make([]*pglease.Client, s.options.Processes)
	for i := range clients {
		pool, err := s.pool(ctx, conns, nil)
		if err != nil {
			return nil, err
		}
		if clients[i], err = s.client(ctx, pool, config); err != nil {
			return nil, err
		}
	}
	return clients, nil
}

// prepareTurns has clients that want the same resource over and over.
func prepareTurns(ctx context.Context, s *stage) (loads, error) {
	n := s.options.Clients
	processes, err := s.processes(ctx, 2+(n-1)/s.options.Processes, pglease.Config{TTL: pglease.DefaultTTL})
	if err != nil {
		return loads{}, err
	}
	clients := make([]*pglease.Client, n)
	for i := range clients {
		clients[i] = processes[i%len(processes)]
	}
	limit, err := s.updates(ctx, n, 2, true)
	return loads{ours: load{run: turns(clients)}, limit: limit, limitName: "two UPDATEs of one row"}, err
}

// turns has every client acquire and release in a loop. What is timed begins when each of them has
// had a turn, because they all come at once at first, and ends before the first of them stops.
func turns(clients []*pglease.Client) runner {
	return func(ctx context.Context, d time.Duration) (sample, error) {
		t := &turn{began: time.Now(), left: len(clients)}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var all sync.WaitGroup
		for _, client := range clients {
			all.Go(func() {
				if err := t.loop(ctx, client, d); err != nil {
					cancel(err)
				}
			})
		}
		all.Wait()
		if ctx.Err() != nil {
			return sample{}, context.Cause(ctx)
		}
		return sample{ops: t.ops, timed: len(t.handed), elapsed: max(d, t.last), latencies: t.handed}, nil
	}
}

// turn is what the clients of turns share.
type turn struct {
	began time.Time

	mu       sync.Mutex
	left     int             // clients that have had no turn yet
	full     time.Duration   // when all had had one, since began
	released time.Duration   // when the last holder called Release, since began
	handed   []time.Duration // latencies since full
	last     time.Duration   // when the last of them was measured, since full
	ops      int             // all turns
}

func (t *turn) loop(ctx context.Context, client *pglease.Client, d time.Duration) error {
	over := false
	for first := true; !over; first = false {
		lease, err := client.Acquire(ctx, resource(0))
		if err != nil {
			return err
		}
		over = t.had(first, time.Since(t.began), d)
		if err := lease.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

// had notes a turn, whose release follows, and tells whether it was the client's last.
func (t *turn) had(first bool, now, d time.Duration) (over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { t.released = time.Since(t.began) }()
	t.ops++
	if first {
		t.left--
		t.full = now
	}
	switch since := now - t.full; {
	case t.left > 0 || first:
		return false
	case since < d || len(t.handed) == 0:
		t.handed, t.last = append(t.handed, now-t.released), since
		return false
	}
	return true
}
