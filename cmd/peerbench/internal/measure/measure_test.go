package measure_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
)

// token is a lock whose waiters are served in any order.
type token chan struct{}

func (l token) acquire(ctx context.Context, _ int) (func(context.Context) error, error) {
	select {
	case <-l:
		return func(context.Context) error { l <- struct{}{}; return nil }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestTurnsCountGrantsToAnother(t *testing.T) {
	t.Parallel()
	for _, contenders := range []int{1, 4} {
		l := token(make(chan struct{}, 1))
		l <- struct{}{}
		s, err := measure.Turns(contenders, false, l.acquire)(t.Context(), 20*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if s.Grants == 0 || s.Moved > s.Grants || s.Ops < s.Grants || len(s.Latencies) != s.Moved || s.Timed != s.Moved {
			t.Errorf("%d contenders: %+v", contenders, s)
		}
		if contenders == 1 && s.Moved > 0 {
			t.Errorf("one contender handed over to another %d times", s.Moved)
		}
		if contenders > 1 && s.Moved == 0 {
			t.Errorf("%d contenders never handed over", contenders)
		}
	}
}

func TestARehearsalGivesEachItsTurns(t *testing.T) {
	t.Parallel()
	l := token(make(chan struct{}, 1))
	l <- struct{}{}
	var turns [3]atomic.Int64
	acquire := func(ctx context.Context, contender int) (func(context.Context) error, error) {
		turns[contender].Add(1)
		return l.acquire(ctx, contender)
	}
	if err := measure.Rehearse(t.Context(), len(turns), 4, acquire); err != nil {
		t.Fatal(err)
	}
	for i := range turns {
		if n := turns[i].Load(); n != 4 {
			t.Errorf("contender %d had %d turns", i, n)
		}
	}
	broken := func(context.Context, int) (func(context.Context) error, error) { return nil, errBroken }
	if err := measure.Rehearse(t.Context(), 2, 3, broken); !errors.Is(err, errBroken) {
		t.Errorf("rehearsed: %v", err)
	}
}

var errBroken = errors.New("broken")

func TestErrorsEndARun(t *testing.T) {
	t.Parallel()
	broken := func(context.Context, int) (func(context.Context) error, error) { return nil, errBroken }
	if _, err := measure.Turns(3, true, broken)(t.Context(), time.Second); !errors.Is(err, errBroken) {
		t.Errorf("turns: %v", err)
	}
	load := measure.Load{Name: "x", Run: measure.Closed(3, func(context.Context, int) (int, error) { return 0, errBroken })}
	if _, err := measure.Rounds(t.Context(), []measure.Load{load}, 2, time.Second); !errors.Is(err, errBroken) {
		t.Errorf("rounds: %v", err)
	}
}

func TestRoundsCompareRoundByRound(t *testing.T) {
	t.Parallel()
	var sent int64
	fixed := func(ops int) measure.Load {
		return measure.Load{Run: func(context.Context, time.Duration) (measure.Sample, error) {
			sent += 3
			return measure.Sample{Ops: ops, Timed: ops, Elapsed: time.Second, Latencies: []time.Duration{time.Millisecond, 5 * time.Millisecond}}, nil
		}, Spent: func() int64 { return sent }}
	}
	all, err := measure.Rounds(t.Context(), []measure.Load{fixed(6), fixed(12)}, 4, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	ours, limit := all[0], all[1]
	if r := ours.Ratios(limit); len(r) != 4 || measure.Median(r) != 0.5 {
		t.Errorf("ratios %v", r)
	}
	if ours.Requests() != 0.5 || ours.Quantile(0.5) != time.Millisecond || ours.Quantile(0.99) != 5*time.Millisecond {
		t.Errorf("%v requests, p50 %v, p99 %v", ours.Requests(), ours.Quantile(0.5), ours.Quantile(0.99))
	}
}
