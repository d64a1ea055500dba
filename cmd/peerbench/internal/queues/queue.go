package queues

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
)

// Workers is how many work at the same time.
const Workers = 8

// A Queue is one way to use a job queue.
type Queue struct {
	Peer  string // whose it is
	Title string
	Open  func(ctx context.Context, url string) (measure.Load, func(), error)
}

// All returns them.
func All() []Queue {
	return append(ours(), rivers()...)
}

// stock keeps enough jobs in a queue for the next run.
type stock struct {
	left, taken atomic.Int64
	add         func(context.Context) (int, error)
}

const leastStocked = 2_000

// fill adds jobs until there are twice as many as the last run took.
func (s *stock) fill(ctx context.Context) error {
	for want := max(leastStocked, 2*s.taken.Swap(0)); s.left.Load() < want; {
		if err := s.more(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *stock) more(ctx context.Context) error {
	n, err := s.add(ctx)
	s.left.Add(int64(n))
	return err
}

func (s *stock) took(n int) {
	s.taken.Add(int64(n))
	s.left.Add(-int64(n))
}

// step claims and completes some jobs and tells how many; none where the queue is empty.
type step func(context.Context) (int, error)

// closed has workers that each take jobs when their last ones are done.
func (s *stock) closed(do step) func(context.Context, time.Duration) (measure.Sample, error) {
	return measure.Closed(Workers, func(ctx context.Context, _ int) (int, error) {
		for {
			n, err := do(ctx)
			if err != nil || n > 0 {
				s.took(n)
				return n, err
			}
			if err := s.more(ctx); err != nil {
				return 0, err
			}
		}
	})
}

// window counts what a worker process does, from its first job on until the time is over.
func (s *stock) window(ctx context.Context, d time.Duration, start func(done func()) (stop func() error, err error)) (measure.Sample, error) {
	var n atomic.Int64
	first := make(chan struct{})
	stop, err := start(func() {
		if n.Add(1) == 1 {
			close(first)
		}
	})
	if err != nil {
		return measure.Sample{}, err
	}
	select {
	case <-first:
	case <-ctx.Done():
		return measure.Sample{}, context.Cause(ctx)
	}
	began := time.Now()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return measure.Sample{}, context.Cause(ctx)
	}
	timed, elapsed := n.Load(), time.Since(began)
	err = stop()
	all := n.Load()
	s.took(int(all))
	return measure.Sample{Ops: int(all), Timed: int(timed), Elapsed: elapsed}, err
}
