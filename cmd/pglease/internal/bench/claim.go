package bench

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pglease/pglease/pglease/jobs"
)

var claim = Work{
	Name:    "claim",
	Summary: "claim and complete jobs of one queue, one after the other",
	unit:    "claim and complete a job",
	limit:   "two UPDATEs of a row of one's own",
	prepare: prepareClaim,
}

const (
	queue       = "bench"
	claimBatch  = 100
	leastFilled = 2_000
)

// prepareClaim claims one at a time and, beside that, in batches.
func prepareClaim(ctx context.Context, s *stage) (loads, error) {
	pool, err := s.pool(ctx, s.options.Clients, nil)
	if err != nil {
		return loads{}, err
	}
	client, err := jobs.New(pool, jobs.Config{Schema: s.schema, TTL: leaseTTL}) // a claim is held from one round to the next
	if err != nil {
		return loads{}, err
	}
	limit, err := s.updates(ctx, s.options.Clients, 2, false)
	return loads{
		ours: claims(client, s.options.Clients, 1), limit: limit,
		also: claims(client, s.options.Clients, claimBatch), alsoName: "in batches of 100",
	}, err
}

// claims takes so many jobs at a time. Before each run the queue is filled for twice as many as the
// last run took; whoever finds it empty all the same adds to it.
func claims(client *jobs.Client, workers, size int) load {
	var taken, left atomic.Int64
	fill := func(ctx context.Context) error {
		for want := max(leastFilled*int64(size), 2*taken.Swap(0)); left.Load() < want; {
			if err := add(ctx, client, &left); err != nil {
				return err
			}
		}
		return nil
	}
	held := make([]*jobs.Claim, workers) // by each worker, where they work on one job after the other
	step := closed(workers, func(ctx context.Context, worker int) error {
		for {
			batch, err := next(ctx, client, &held[worker], size)
			if err != nil {
				return err
			}
			taken.Add(int64(len(batch)))
			left.Add(-int64(len(batch)))
			if len(batch) == 1 && size == 1 {
				held[worker] = batch[0]
				return nil
			}
			if len(batch) > 0 {
				return client.Complete(ctx, batch...)
			}
			if err := add(ctx, client, &left); err != nil {
				return err
			}
		}
	})
	return load{fill: fill, run: func(ctx context.Context, d time.Duration) (sample, error) {
		before := taken.Load()
		s, err := step(ctx, d)
		s.ops = int(taken.Load() - before)
		s.timed = s.ops
		return s, err
	}}
}

// next claims so many jobs, and with the same call completes the one that is held.
func next(ctx context.Context, client *jobs.Client, held **jobs.Claim, size int) ([]*jobs.Claim, error) {
	done := *held
	if *held = nil; done != nil {
		return client.CompleteAndClaim(ctx, done, size)
	}
	return client.Claim(ctx, queue, size)
}

func add(ctx context.Context, client *jobs.Client, left *atomic.Int64) error {
	batch := make([]jobs.Job, jobs.MaxBatch)
	for i := range batch {
		batch[i] = jobs.Job{Queue: queue, Payload: []byte(`{}`)}
	}
	_, err := client.Enqueue(ctx, batch...)
	if err == nil {
		left.Add(int64(len(batch)))
	}
	return err
}
