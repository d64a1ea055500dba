package bench

import (
	"context"
	"sync"
	"time"
)

// A Work is what can be measured.
type Work struct {
	Name    string
	Summary string // what it does, for a list

	unit    string // what is counted
	limit   string // what the limit does in place of one
	also    string // what is compared beside that
	prepare func(context.Context, *stage) (loads, error)
}

// Works returns what can be measured.
func Works() []Work { return []Work{pairs, refused, handoff, renew, publish, guard, claim} }

// loads are what a work runs in turn: the work itself, its limit, and perhaps another to compare
// with.
type loads struct {
	ours, limit, also load
	limitName         string // where it is not the work's
	alsoName          string
}

// A load is what runs for a time, and what is done before that and not measured.
type load struct {
	fill func(context.Context) error // may be nil
	run  runner
}

func (l load) prepare(ctx context.Context) error {
	if l.fill == nil {
		return nil
	}
	return l.fill(ctx)
}

// A runner runs for about d and returns what it did: at least one operation.
type runner func(ctx context.Context, d time.Duration) (sample, error)

// A sample is what a load did in one round.
type sample struct {
	ops       int // all, for what they cost
	timed     int // those that were done in elapsed
	elapsed   time.Duration
	latencies []time.Duration
}

func (s sample) rate() float64 { return float64(s.timed) / s.elapsed.Seconds() }

// An operation is one by the given worker, from 0.
type operation func(ctx context.Context, worker int) error

// closed has workers that each begin an operation when their last one has ended.
func closed(workers int, op operation) runner {
	return func(ctx context.Context, d time.Duration) (sample, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		latencies := make([][]time.Duration, workers)
		began := time.Now()
		end := began.Add(d)
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				var err error
				if latencies[w], err = repeat(ctx, end, w, op); err != nil {
					cancel(err)
				}
			})
		}
		all.Wait()
		if ctx.Err() != nil {
			return sample{}, context.Cause(ctx)
		}
		s := sample{elapsed: time.Since(began)}
		for _, l := range latencies {
			s.ops, s.timed = s.ops+len(l), s.timed+len(l)
			s.latencies = append(s.latencies, l...)
		}
		return s, nil
	}
}

// repeat times operations until the end, one at least.
func repeat(ctx context.Context, end time.Time, worker int, op operation) (latencies []time.Duration, err error) {
	for began := time.Now(); len(latencies) == 0 || began.Before(end); {
		if err := op(ctx, worker); err != nil {
			return nil, err
		}
		now := time.Now()
		latencies = append(latencies, now.Sub(began))
		began = now
	}
	return latencies, nil
}
