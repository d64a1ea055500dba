package measure

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A Load is what runs for a time.
type Load struct {
	Name string
	Fill func(context.Context) error // done before each run and not measured; may be nil
	Run  func(ctx context.Context, d time.Duration) (Sample, error)
	Drop func() // done after each run and not measured; may be nil
	// Spent returns how many requests were sent up to now; nil where nobody counts.
	Spent func() int64
}

// A Sample is what a load did in one run.
type Sample struct {
	Ops       int           // all, for what they cost
	Timed     int           // those that were done in Elapsed
	Elapsed   time.Duration // at least a nanosecond
	Latencies []time.Duration
	Moved     int // hand-overs: grants that went to another than the holder before
	Grants    int // hand-overs: all grants
}

func (s Sample) rate() float64 { return float64(s.Timed) / s.Elapsed.Seconds() }

// An Operation is one by the given worker, from 0. It returns how many it counts for.
type Operation func(ctx context.Context, worker int) (int, error)

// Closed has workers that each begin an operation when their last one has ended, and each do one at
// least.
func Closed(workers int, op Operation) func(context.Context, time.Duration) (Sample, error) {
	return func(ctx context.Context, d time.Duration) (Sample, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		samples := make([]Sample, workers)
		began := time.Now()
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				var err error
				if samples[w], err = repeat(ctx, began.Add(d), w, op); err != nil {
					cancel(err)
				}
			})
		}
		all.Wait()
		if ctx.Err() != nil {
			return Sample{}, context.Cause(ctx)
		}
		sum := Sample{Elapsed: time.Since(began)}
		for _, s := range samples {
			sum.Ops, sum.Timed = sum.Ops+s.Ops, sum.Timed+s.Ops
			sum.Latencies = append(sum.Latencies, s.Latencies...)
		}
		return sum, nil
	}
}

func repeat(ctx context.Context, end time.Time, worker int, op Operation) (s Sample, err error) {
	for began := time.Now(); len(s.Latencies) == 0 || began.Before(end); {
		n, err := op(ctx, worker)
		if err != nil {
			return s, fmt.Errorf("worker %d: %w", worker, err)
		}
		now := time.Now()
		s.Ops += n
		s.Latencies = append(s.Latencies, now.Sub(began))
		began = now
	}
	return s, nil
}
