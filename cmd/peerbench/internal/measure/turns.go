package measure

import (
	"context"
	"errors"
	"sync"
	"time"
)

// An Acquire waits for the resource by the given contender and returns what releases it.
type Acquire func(ctx context.Context, contender int) (release func(context.Context) error, err error)

// settle is how long contenders may take, at most, until each has had a turn, before turns are timed.
const settle = 500 * time.Millisecond

// Turns has contenders that want one resource over and over. A hand-over is a grant to another
// contender than the last; its latency is from the call of the release until the other has it. A run
// goes on until there was one, within reason. Where drain is set, those who still wait at the end are
// left to get their turns, else their waits are cancelled.
func Turns(contenders int, drain bool, acquire Acquire) func(context.Context, time.Duration) (Sample, error) {
	return func(ctx context.Context, d time.Duration) (Sample, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		t := &turns{began: time.Now(), left: contenders, last: -1, seen: make([]bool, contenders)}
		if !drain {
			t.over = func() { cancel(errOver) }
		}
		// Where nobody gets a turn for long, as with waiters that rarely ask, the time ends the run.
		t.timer = time.AfterFunc(patience, t.end)
		var all sync.WaitGroup
		for i := range contenders {
			all.Go(func() {
				if err := t.loop(ctx, i, d, acquire); err != nil && !errors.Is(context.Cause(ctx), errOver) {
					cancel(err)
				}
			})
		}
		all.Wait()
		t.timer.Stop()
		if err := context.Cause(ctx); err != nil && !errors.Is(err, errOver) {
			return Sample{}, err
		}
		return Sample{
			Ops: t.turns, Timed: len(t.handed), Elapsed: max(t.until, d), Latencies: t.handed,
			Moved: t.moved, Grants: t.grants,
		}, nil
	}
}

// Rehearse gives each contender so many turns that nobody measures: sessions are made in it, statements prepared,
// and code loaded. It is for those who are served in order: another might have to wait for ever.
func Rehearse(ctx context.Context, contenders, turns int, acquire Acquire) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i := range contenders {
		all.Go(func() {
			for range turns {
				release, err := acquire(ctx, i)
				if err == nil {
					err = release(context.WithoutCancel(ctx))
				}
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

const (
	grace    = 5 * time.Second  // how much later than wanted the last timed turn may come
	patience = 20 * time.Second // for the first ones
)

var errOver = errors.New("the run is over")

// turns is what the contenders share.
type turns struct {
	began time.Time
	over  func() // may be nil
	timer *time.Timer

	mu       sync.Mutex
	left     int // contenders that have had no turn yet
	seen     []bool
	from     time.Time // when the timing began; zero before
	ended    bool
	last     int       // the contender before
	released time.Time // when that one called its release
	handed   []time.Duration
	until    time.Duration // since from, when the last turn was timed
	turns    int
	moved    int
	grants   int
}

func (t *turns) loop(ctx context.Context, contender int, d time.Duration, acquire Acquire) error {
	for {
		release, err := acquire(ctx, contender)
		if err != nil {
			return err
		}
		over := t.had(contender, time.Now(), d)
		if err := release(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		if over {
			return nil
		}
	}
}

// had notes a turn, whose release follows, and tells whether it was the contender's last.
func (t *turns) had(contender int, now time.Time, d time.Duration) (over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { t.last, t.released = contender, time.Now() }()
	t.turns++
	if !t.seen[contender] {
		t.seen[contender] = true
		t.left--
	}
	switch {
	case t.ended:
		return true
	case t.from.IsZero():
		if t.left == 0 || now.Sub(t.began) > settle {
			t.from = now
			t.timer.Reset(d + grace)
		}
		return false
	case now.Sub(t.from) >= d && (t.moved > 0 || len(t.seen) == 1): // a slow machine may need longer for the first
		t.finish()
		return true
	}
	t.grants++
	if contender != t.last {
		t.moved++
		t.handed = append(t.handed, now.Sub(t.released))
	}
	t.until = now.Sub(t.from)
	return false
}

func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finish()
}

func (t *turns) finish() {
	if t.ended {
		return
	}
	t.ended = true
	if t.over != nil {
		t.over()
	}
}
