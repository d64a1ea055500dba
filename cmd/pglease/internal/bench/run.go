package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// warmUp is how long each load runs unrecorded, at most.
const warmUp = 250 * time.Millisecond

// Run measures one work. It makes a schema of its own and drops it, also when the context ends
// first. The error matches ErrOptions where nothing was done because the options cannot be right.
func Run(ctx context.Context, options Options) (_ Result, err error) {
	options, err = options.filled()
	if err != nil {
		return Result{}, err
	}
	s := &stage{options: options}
	defer func() { err = errors.Join(err, s.end(ctx)) }()
	if err := s.open(ctx); err != nil {
		return Result{}, err
	}
	work := Works()[slices.IndexFunc(Works(), func(w Work) bool { return w.Name == options.Work })]
	loads, err := work.prepare(ctx, s)
	if err != nil {
		return Result{}, fmt.Errorf("prepare %s: %w", work.Name, err)
	}
	all, err := s.measure(ctx, loads)
	if err != nil {
		return Result{}, fmt.Errorf("measure %s: %w", work.Name, err)
	}
	work.limit = cmp.Or(loads.limitName, work.limit)
	work.also = loads.alsoName
	return s.result(ctx, work, all)
}

// A series is what one load did in all rounds.
type series struct {
	rates     []float64 // one a round
	latencies []time.Duration
	ops       int
	spent     cost
}

// measure returns a series of each load, in the order of the fields of loads.
func (s *stage) measure(ctx context.Context, l loads) ([]*series, error) {
	todo := []load{l.ours, l.limit}
	if l.also.run != nil {
		todo = append(todo, l.also)
	}
	all := make([]*series, len(todo))
	order := make([]int, len(todo))
	for i, load := range todo {
		all[i], order[i] = &series{}, i
		if err := load.prepare(ctx); err != nil {
			return nil, err
		}
		if _, err := load.run(ctx, min(warmUp, s.options.For)); err != nil {
			return nil, err
		}
	}
	for range s.options.Rounds {
		slices.Reverse(order)
		for _, i := range order {
			if err := s.once(ctx, todo[i], all[i]); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func (s *stage) once(ctx context.Context, l load, to *series) error {
	if err := l.prepare(ctx); err != nil {
		return err
	}
	before, err := s.spent(ctx)
	if err != nil {
		return err
	}
	did, err := l.run(ctx, s.options.For)
	if err != nil {
		return err
	}
	after, err := s.spent(ctx)
	if err != nil {
		return err
	}
	to.rates = append(to.rates, did.rate())
	to.latencies = append(to.latencies, did.latencies...)
	to.ops += did.ops
	to.spent.statements += after.statements - before.statements
	to.spent.trips += after.trips - before.trips
	to.spent.wal += after.wal - before.wal
	return nil
}
