package contest

import (
	"context"
	"fmt"
	"time"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
)

// lockTTL is as long as nothing has to be renewed while pairs and hand-overs are measured.
const lockTTL = time.Minute

// pollTTL is that of hand-overs of those whose waiters ask once in the TTL: short, in their favour.
const pollTTL = 2 * time.Second

// rehearsed is how many turns each contender has before its hand-overs are measured. A Postgres session plans a
// statement anew in its first five executions, and once more for the rest of its life.
const rehearsed = 10

// pairs has clients that acquire and release a resource of their own, in one process.
func (s *stage) pairs(ctx context.Context, p *prepared, n int) error {
	if err := s.limit(ctx, p, "two UPDATEs of a row of one's own", n, 2); err != nil {
		return err
	}
	for _, peer := range s.peers {
		if peer.Open == nil || peer.OnlyHandOvers {
			continue
		}
		count := &measure.Counter{}
		crowd, err := peer.Open(ctx, peers.Options{Address: s.addresses[peer.Server], N: n, TTL: lockTTL, Count: count})
		if err != nil {
			return fmt.Errorf("%s: %w", peer.Name, err)
		}
		run := measure.Closed(n, func(ctx context.Context, worker int) (int, error) {
			release, err := crowd.Sessions[worker].Acquire(ctx, fmt.Sprintf("pairs/%d", worker), false)
			if err != nil {
				return 0, err
			}
			return 1, release(ctx)
		})
		p.add(peer.Title, measure.Load{Name: peer.Name, Run: run, Spent: count.Count}, crowd.Close)
	}
	return nil
}

// handOvers has contenders, each as in a process of its own, that want one resource over and over.
// They come and go with each round, so that those who wait their turn to be measured disturb nobody.
func (s *stage) handOvers(ctx context.Context, p *prepared, n int) error {
	limit, end, err := LimitInTurn(ctx, s.addresses[servers.Postgres], n)
	if err != nil {
		return err
	}
	p.add(fmt.Sprintf("one UPDATE, by each of %d connections in turn", n), limit, end)
	p.add("NOTIFY alone, as many sessions listen", notify(ctx, s.addresses[servers.Postgres], n), func() {})
	for _, peer := range s.peers {
		if peer.Open == nil {
			continue
		}
		p.add(peer.Title, s.turns(peer, n), func() {})
	}
	return nil
}

func (s *stage) turns(peer peers.Peer, n int) measure.Load {
	count, ttl := &measure.Counter{}, lockTTL
	if peer.LooksByTTL {
		ttl = pollTTL
	}
	var crowd peers.Crowd
	acquire := func(ctx context.Context, contender int) (func(context.Context) error, error) {
		return crowd.Sessions[contender].Acquire(ctx, "handover", true)
	}
	return measure.Load{
		Name: peer.Name, Spent: count.Count,
		Fill: func(ctx context.Context) (err error) {
			crowd, err = peer.Open(ctx, peers.Options{
				Address: s.addresses[peer.Server], N: n, Apart: true, TTL: ttl, Count: count,
			})
			if err != nil || !peer.Facts.InOrder { // who is served by chance may not get so many turns
				return err
			}
			if err = measure.Rehearse(ctx, n, rehearsed, acquire); err != nil {
				crowd.Close()
			}
			return err
		},
		Run:  measure.Turns(n, peer.Facts.InOrder, acquire),
		Drop: func() { crowd.Close() },
	}
}

// renewals has one client that keeps n locks.
func (s *stage) renewals(ctx context.Context, p *prepared, n int) error {
	if err := s.limit(ctx, p, "one UPDATE a lease, by one connection", 1, 1); err != nil {
		return err
	}
	for _, peer := range s.peers {
		if peer.Renew == nil {
			continue
		}
		r, err := peer.Renew(ctx, peers.Options{Address: s.addresses[peer.Server], N: n, Count: &measure.Counter{}})
		if err != nil {
			return fmt.Errorf("%s: %w", peer.Name, err)
		}
		r.Load.Name = peer.Name
		p.add(peer.Title, r.Load, r.Close)
	}
	return nil
}

// limit is what Postgres does by itself: bare UPDATEs of single rows, each a transaction, prepared,
// by as many connections. Each worker changes a row of its own.
func (s *stage) limit(ctx context.Context, p *prepared, title string, workers, each int) error {
	load, end, err := Limit(ctx, s.addresses[servers.Postgres], workers, each)
	if err == nil {
		p.add(title, load, end)
	}
	return err
}
