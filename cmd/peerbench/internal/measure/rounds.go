package measure

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// warmUp is how long each load runs unrecorded before the first round, at most: connections are
// made in it, and statements prepared.
const warmUp = 200 * time.Millisecond

// A Series is what one load did in all rounds.
type Series struct {
	Name      string
	Rates     []float64 // one a round
	Latencies []time.Duration

	ops, moved, grants int
	requests           int64
	counted            bool
}

// Rounds runs the loads in turn, so many rounds, each for about d.
func Rounds(ctx context.Context, loads []Load, rounds int, d time.Duration) ([]*Series, error) {
	all := make([]*Series, len(loads))
	order := make([]int, len(loads))
	for i, l := range loads {
		all[i], order[i] = &Series{Name: l.Name, counted: l.Spent != nil}, i
		if err := (&Series{}).add(ctx, l, min(warmUp, d)); err != nil {
			return nil, err
		}
	}
	for range rounds {
		slices.Reverse(order)
		for _, i := range order {
			if err := all[i].add(ctx, loads[i], d); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// Turn runs each load once, for about d, without a warm-up.
func Turn(ctx context.Context, loads []Load, d time.Duration) ([]*Series, error) {
	all := make([]*Series, len(loads))
	for i, l := range loads {
		all[i] = &Series{Name: l.Name, counted: l.Spent != nil}
		if err := all[i].add(ctx, l, d); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (s *Series) add(ctx context.Context, l Load, d time.Duration) error {
	if l.Fill != nil {
		if err := l.Fill(ctx); err != nil {
			return fmt.Errorf("%s: prepare: %w", l.Name, err)
		}
	}
	if l.Drop != nil {
		defer l.Drop()
	}
	var before, after int64
	if l.Spent != nil {
		before = l.Spent()
	}
	did, err := l.Run(ctx, d)
	if err != nil {
		return fmt.Errorf("%s: %w", l.Name, err)
	}
	if l.Spent != nil {
		after = l.Spent()
	}
	s.Rates = append(s.Rates, did.rate())
	s.Latencies = append(s.Latencies, did.Latencies...)
	s.ops, s.requests = s.ops+did.Ops, s.requests+after-before
	s.moved, s.grants = s.moved+did.Moved, s.grants+did.Grants
	return nil
}

// Requests is how many were sent for one operation; NaN where nobody counted.
func (s *Series) Requests() float64 {
	if !s.counted || s.ops == 0 {
		return math.NaN()
	}
	return float64(s.requests) / float64(s.ops)
}

// Moved is the share of grants that went to another than the holder before; NaN where there were
// none.
func (s *Series) Moved() float64 { return float64(s.moved) / float64(s.grants) }

// Ratios compares the rates with those of a limit, round by round.
func (s *Series) Ratios(limit *Series) []float64 {
	list := make([]float64, len(s.Rates))
	for i, rate := range s.Rates {
		list[i] = rate / limit.Rates[i]
	}
	return list
}

// Quantile of the latencies; 0 where there are none.
func (s *Series) Quantile(q float64) time.Duration {
	if len(s.Latencies) == 0 {
		return 0
	}
	slices.Sort(s.Latencies)
	rank := int(math.Ceil(q*float64(len(s.Latencies)))) - 1
	return s.Latencies[max(rank, 0)]
}

// Median of at least one number.
func Median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
