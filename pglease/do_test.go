package pglease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pglease/pglease/pglease"
)

func TestDoReleasesAfterTheWork(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		broken := errors.New("broken pipe")
		err := c.Do(t.Context(), "r", func(ctx context.Context, l *pglease.Lease) error {
			if f.count("release") != 0 {
				t.Error("released while the work runs")
			}
			time.Sleep(5 * ttl)
			wantState(t, l, pglease.Held)
			return errors.Join(broken, ctx.Err())
		})
		if !errors.Is(err, broken) || errors.Is(err, pglease.ErrLost) {
			t.Errorf("Do: %v", err)
		}
		if f.rows["r"].ended != "released" {
			t.Errorf("the row is %q after Do", f.rows["r"].ended)
		}
	})
}

func TestDoCancelsTheWorkWithTheLossAndWaitsForIt(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		stopped := errors.New("stopped half way")
		finished := false
		err := c.Do(t.Context(), "r", func(ctx context.Context, _ *pglease.Lease) error {
			f.set(func(f *fakeAuthority) { f.silent = true })
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, pglease.ErrLost) {
				t.Errorf("cause: %v", cause)
			}
			time.Sleep(time.Minute) // work that is slow to stop
			finished = true
			return stopped
		})
		if !finished {
			t.Error("Do returned before the work")
		}
		if !errors.Is(err, stopped) || !errors.Is(err, pglease.ErrLost) {
			t.Errorf("Do tells not both: %v", err)
		}
		f.set(func(f *fakeAuthority) { f.silent = false })
	})
}

func TestDoTellsOfALossThatTheWorkDidNotSee(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		err := c.Do(t.Context(), "r", func(context.Context, *pglease.Lease) error {
			f.set(func(f *fakeAuthority) { f.rows["r"].ended = "broken" })
			return nil
		})
		if !errors.Is(err, pglease.ErrLost) {
			t.Errorf("Do: %v", err)
		}
	})
}

func TestDoReleasesWhenTheWorkPanics(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic did not go on")
				}
			}()
			_ = c.Do(t.Context(), "r", func(context.Context, *pglease.Lease) error { panic("boom") })
		}()
		if f.rows["r"].ended != "released" {
			t.Error("not released")
		}
	})
}

func TestDoReleasesThoughItsContextEnded(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		err := c.Do(ctx, "r", func(context.Context, *pglease.Lease) error { cancel(); return nil })
		if err != nil || f.rows["r"].ended != "released" {
			t.Errorf("Do: %v, row %q", err, f.rows["r"].ended)
		}
	})
}

func TestCloseLetsGuardedWorkFinish_I12(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		done := make(chan error)
		go func() {
			done <- c.Do(t.Context(), "r", func(ctx context.Context, l *pglease.Lease) error {
				time.Sleep(time.Minute)
				wantState(t, l, pglease.Held) // still renewed: renewal stops last
				return ctx.Err()
			})
		}()
		synctest.Wait()
		closing := make(chan error)
		go func() { closing <- c.Close(t.Context()) }()
		synctest.Wait()
		if _, err := c.TryAcquire(t.Context(), "other"); !errors.Is(err, pglease.ErrClosed) {
			t.Errorf("TryAcquire while closing: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("Do: %v", err)
		}
		if err := <-closing; err != nil {
			t.Errorf("Close: %v", err)
		}
		if f.rows["r"].ended != "released" {
			t.Error("not released")
		}
	})
}

func TestCloseIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		done := make(chan error)
		go func() {
			done <- c.Do(t.Context(), "r", func(ctx context.Context, _ *pglease.Lease) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		synctest.Wait()
		f.set(func(f *fakeAuthority) { f.silent = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		if err := <-done; !errors.Is(err, pglease.ErrLost) || !errors.Is(err, pglease.ErrClosed) {
			t.Errorf("Do: %v", err)
		}
	})
}

func TestCloseReleasesAndIsIdempotent(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		a, b := acquire(t, c, "a"), acquire(t, c, "b")
		for range 3 {
			if err := c.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		wantState(t, a, pglease.Released)
		wantState(t, b, pglease.Released)
		if f.count("release") != 2 {
			t.Errorf("%d releases", f.count("release"))
		}
	})
}

func TestAcquireTimesOutWithBothErrors_U4(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, _ *fakeAuthority, c *pglease.Client) {
		acquire(t, c, "r")
		ctx, cancel := context.WithTimeout(t.Context(), 5*ttl)
		defer cancel()
		lease, err := c.Acquire(ctx, "r")
		if lease != nil || !errors.Is(err, pglease.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire: %v, %v", lease, err)
		}
	})
}

func TestCloseEndsAWait(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, _ *fakeAuthority, c *pglease.Client) {
		acquire(t, c, "r")
		waiting := make(chan error)
		go func() {
			_, err := c.Acquire(t.Context(), "r")
			waiting <- err
		}()
		synctest.Wait()
		go func() { _ = c.Close(t.Context()) }()
		if err := <-waiting; !errors.Is(err, pglease.ErrClosed) {
			t.Errorf("Acquire: %v", err)
		}
	})
}

func TestReleaseWithAnEndedContextThenAgain_U3(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		lease := acquire(t, c, "r")
		f.set(func(f *fakeAuthority) { f.delay = time.Second })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := lease.Release(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("first: %v", err)
		}
		wantState(t, lease, pglease.Releasing)
		if err := lease.Release(t.Context()); err != nil || f.rows["r"].ended != "released" {
			t.Errorf("second: %v, row %q", err, f.rows["r"].ended)
		}
	})
}
