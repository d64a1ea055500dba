package pglease_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pglease/pglease/pglease"
)

// steps collects what is told of the database's clock.
type steps struct {
	mu   sync.Mutex
	seen []time.Duration
}

func (s *steps) Observe(e pglease.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Kind == pglease.EventClockStep {
		s.seen = append(s.seen, e.Duration)
	}
}

func (s *steps) list() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func TestAClockThatIsFarOffIsNoStep_T3(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		var seen steps
		inBubble(t, pglease.Config{Observer: &seen}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
			f.set(func(f *fakeAuthority) { f.clock = off })
			lease := acquire(t, c, "r")
			for range 20 {
				f.set(func(f *fakeAuthority) { f.delay = rand.N(time.Second) })
				time.Sleep(ttl / 3)
			}
			wantState(t, lease, pglease.Held)
		})
		if list := seen.list(); len(list) > 0 {
			t.Errorf("%v off: told of steps %v", off, list)
		}
	}
}

// TestAForwardStepMakesHoldersCheck: such a step ends leases early, so each holder is suspect until
// its own lease is confirmed.
func TestAForwardStepMakesHoldersCheck(t *testing.T) {
	t.Parallel()
	var seen steps
	inBubble(t, pglease.Config{Observer: &seen}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		first := acquire(t, c, "first", pglease.WithTTL(ttl/3)) // renewed before the second is due
		time.Sleep(ttl / 2)
		second := acquire(t, c, "second")
		f.set(func(f *fakeAuthority) { f.clock = 10 * time.Second })
		states, stop := second.States()
		defer stop()
		for len(seen.list()) == 0 {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if step := seen.list()[0]; step < 9*time.Second || step > 11*time.Second {
			t.Errorf("a step of 10 s is told as %v", step)
		}
		wantState(t, first, pglease.Held) // confirmed by the reply that showed the step
		wantState(t, second, pglease.Held)
		if s := <-states; s != pglease.Held {
			t.Errorf("second is %v", s)
		}
		if n := f.count("renew"); n < 3 {
			t.Errorf("%d renewals: the second lease was not checked", n)
		}
	})
}

func TestALeaseInDoubtAdmitsNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		acquire(t, c, "first", pglease.WithTTL(ttl/3))
		time.Sleep(ttl / 2)
		second := acquire(t, c, "second")
		f.set(func(f *fakeAuthority) { f.clock, f.delay = time.Minute, 200*time.Millisecond })
		states, stop := second.States()
		defer stop()
		for <-states != pglease.Suspect {
			continue
		}
		if err := second.Admit(0); !errors.Is(err, pglease.ErrNotAdmitted) {
			t.Errorf("Admit in doubt: %v", err)
		}
		if <-states != pglease.Held {
			t.Error("not confirmed")
		}
	})
}

// TestAnOlderReplyDoesNotEndTheDoubt: it was made before the clock was set, and read after that was
// noticed.
func TestAnOlderReplyDoesNotEndTheDoubt(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{RequestTimeout: 4 * time.Second}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		lease := acquire(t, c, "first")
		f.set(func(f *fakeAuthority) { f.lag = 2 * time.Second })
		for f.count("renew") == 0 {
			time.Sleep(99 * time.Millisecond)
			synctest.Wait()
		}
		time.Sleep(time.Millisecond)
		f.set(func(f *fakeAuthority) { f.clock, f.lag = time.Minute, 0 })
		acquire(t, c, "second") // shows the step, while the reply is on its way
		wantState(t, lease, pglease.Suspect)
		states, stop := lease.States()
		defer stop()
		if s := <-states; s != pglease.Suspect {
			t.Errorf("state %v", s)
		}
		if s := <-states; s != pglease.Held {
			t.Errorf("state %v", s)
		}
		if n := f.count("renew"); n < 2 {
			t.Error("the doubt was ended by the reply that had been under way")
		}
	})
}

func TestABackwardStepIsToldAndHarmless(t *testing.T) {
	t.Parallel()
	var seen steps
	inBubble(t, pglease.Config{Observer: &seen}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		lease := acquire(t, c, "r")
		time.Sleep(ttl / 2)
		f.set(func(f *fakeAuthority) { f.clock = -time.Second / 2 })
		time.Sleep(ttl)
		synctest.Wait()
		wantState(t, lease, pglease.Held)
		if list := seen.list(); len(list) != 1 || list[0] > -400*time.Millisecond || list[0] < -600*time.Millisecond {
			t.Errorf("a step of -0.5 s is told as %v", list)
		}
	})
}

func TestAGrantOfAnOlderGenerationIsRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		f.set(func(f *fakeAuthority) { f.fence = 2 << 41 })
		acquire(t, c, "a")
		f.set(func(f *fakeAuthority) { f.fence = 1<<41 + 1000 }) // an old primary came back
		_, err := c.TryAcquire(t.Context(), "b")
		if !errors.Is(err, pglease.ErrStaleServer) {
			t.Errorf("TryAcquire: %v", err)
		}
		if f.count("abandon") != 1 {
			t.Error("the grant was not given up")
		}
		f.set(func(f *fakeAuthority) { f.fence, f.rows = 2<<41+1, map[string]*fakeRow{} })
		acquire(t, c, "b")
	})
}
