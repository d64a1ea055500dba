package pglease_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// TestASlowGrantIsRenewedAtOnce_T2: the row was locked, or the reply was slow, for most of the TTL. The
// trust counts from before the request, so it is nearly gone when the grant arrives.
func TestASlowGrantIsRenewedAtOnce_T2(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{RequestTimeout: ttl}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		f.set(func(f *fakeAuthority) { f.delay = ttl * 9 / 10 })
		done := make(chan *pglease.Lease)
		go func() { done <- acquire(t, c, "r") }()
		synctest.Wait()
		f.set(func(f *fakeAuthority) { f.delay = 0 }) // for what follows
		lease := <-done
		if left := lease.Remaining(); left < ttl*9/10 {
			t.Errorf("%v of %v left", left, ttl)
		}
		time.Sleep(3 * ttl)
		wantState(t, lease, pglease.Held)
	})
}

func TestAGrantThatArrivesAfterCloseIsGivenBack(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		f.set(func(f *fakeAuthority) { f.delay = time.Second })
		refused := make(chan error)
		go func() {
			_, err := c.TryAcquire(t.Context(), "r")
			refused <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/10)
		defer cancel()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		if err := <-refused; !errors.Is(err, pglease.ErrClosed) {
			t.Errorf("TryAcquire: %v", err)
		}
		if f.count("abandon") != 1 || len(c.Leases()) != 0 {
			t.Errorf("%d abandoned, %d leases", f.count("abandon"), len(c.Leases()))
		}
	})
}

// TestAnImpatientCloseDoesNotDisturbAPatientOne: the work goes on, and both tell the truth.
func TestAnImpatientCloseDoesNotDisturbAPatientOne(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		var wg sync.WaitGroup
		wg.Go(func() {
			err := c.Do(t.Context(), "r", func(ctx context.Context, _ *pglease.Lease) error {
				time.Sleep(time.Minute)
				return ctx.Err()
			})
			if err != nil {
				t.Errorf("Do: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if err := c.Close(t.Context()); err != nil {
				t.Errorf("the patient Close: %v", err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the impatient Close: %v", err)
		}
		wg.Wait()
		if f.rows["r"].ended != "released" {
			t.Error("not released")
		}
	})
}

// TestALeaseThatIsBeingReleasedIsNotGivenAgain: a nil error means that it is held.
func TestALeaseThatIsBeingReleasedIsNotGivenAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		id := pglease.WithRequestID(pglease.NewRequestID())
		lease := acquire(t, c, "r", id)
		f.set(func(f *fakeAuthority) { f.delay = time.Second })
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := lease.Release(ended); err == nil {
			t.Fatal("released with an ended context")
		}
		if again, err := c.TryAcquire(t.Context(), "r", id); !errors.Is(err, pglease.ErrRequestSpent) {
			t.Errorf("TryAcquire: %v, %v", again, err)
		}
	})
}

// TestWaitingGoesOnWhileTheDatabaseFails: the context bounds it, and nothing else.
func TestWaitingGoesOnWhileTheDatabaseFails(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		f.set(func(f *fakeAuthority) { f.failing = errSilent })
		go func() {
			time.Sleep(10 * time.Minute)
			f.set(func(f *fakeAuthority) { f.failing = nil })
		}()
		lease, err := c.Acquire(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		release(t, lease)
		f.set(func(f *fakeAuthority) { f.failing = errSilent })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Acquire(ctx, "r"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errSilent) || errors.Is(err, pglease.ErrHeld) {
			t.Errorf("Acquire: %v", err)
		}
		f.set(func(f *fakeAuthority) { f.failing = nil })
	})
}

func TestALossIsToldOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		err := c.Do(t.Context(), "r", func(ctx context.Context, _ *pglease.Lease) error {
			f.set(func(f *fakeAuthority) { f.rows["r"].ended = "broken" })
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if n := strings.Count(err.Error(), "lease lost"); n != 1 {
			t.Errorf("told %d times: %v", n, err)
		}
	})
}

// TestAFreeResourceNamesNoHolder: a rival is at the row, and its last owner has long released it.
func TestAFreeResourceNamesNoHolder(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	old, client := newClient(t, pool, pglease.Config{Owner: "old"}), newClient(t, pool, pglease.Config{})
	release(t, acquire(t, old, "r"))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM pglease.resource_lease FOR SHARE"); err != nil {
		t.Fatal(err)
	}
	_, err = client.TryAcquire(t.Context(), "r")
	var held *pglease.HeldError
	if !errors.As(err, &held) || held.Owner != "" || held.Remaining != 0 {
		t.Errorf("TryAcquire: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	release(t, acquire(t, client, "r"))
}

// TestADrainedPoolDoesNotHoldUpARelease: it goes by the connection of the renewals.
func TestADrainedPoolDoesNotHoldUpARelease(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t)
	honest, pool := pools.Open(t, url), pools.Open(t, url, pools.Conns(1))
	client := newClient(t, pool, pglease.Config{RequestTimeout: 2 * time.Second})
	lease := acquire(t, client, "r")
	drained, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer drained.Release()
	release(t, lease)
	if r := readRow(t, honest, "r"); r.current {
		t.Error("the row is held")
	}
}

func TestANilPoolIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := pglease.New(t.Context(), nil, pglease.Config{}); !errors.Is(err, pglease.ErrInvalidConfig) {
		t.Errorf("New: %v", err)
	}
}

// TestCloseIsNotHeldUpByAnObserver that does not return.
func TestCloseIsNotHeldUpByAnObserver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		client, err := pglease.NewWithAuthority(newFake(), pglease.Config{Observer: pglease.ObserverFunc(func(pglease.Event) { <-goOn })})
		if err != nil {
			t.Fatal(err)
		}
		acquire(t, client, "r")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := client.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		close(goOn)
	})
}

// TestALockedRowDoesNotLoseOthersThoughThePoolIsDrained: what waits for the locked row does so on a
// connection of its own.
func TestALockedRowDoesNotLoseOthersThoughThePoolIsDrained(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t)
	honest, pool := pools.Open(t, url), pools.Open(t, url, pools.Conns(1))
	seen := newRenewals()
	client := newClient(t, pool, pglease.Config{TTL: 3 * time.Second, Observer: seen})
	other := acquire(t, client, "other")
	held := acquire(t, client, "locked")
	drained, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer drained.Release()
	tx, err := honest.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM pglease.resource_lease WHERE resource_id = 'locked' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 5 {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = client.Acquire(ctx, "locked", pglease.WithMaxWait(time.Second)) // it waits for the row
			}
		})
	}
	seen.more(t, 6) // two TTLs
	wantState(t, other, pglease.Held)
	cancel()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err := held.Release(t.Context()); err != nil && !errors.Is(err, pglease.ErrLost) {
		t.Errorf("Release: %v", err)
	}
}
