package pglease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pglease/pglease/pglease"
)

const ttl = 30 * time.Second

// inBubble runs a test of timers: time stands still while anything of ours can run.
func inBubble(t *testing.T, config pglease.Config, test func(t *testing.T, f *fakeAuthority, c *pglease.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		client, err := pglease.NewWithAuthority(fake, config)
		if err != nil {
			t.Fatal(err)
		}
		test(t, fake, client)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := client.Close(ctx); err != nil && !fake.silent && fake.failing == nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func acquire(t *testing.T, c *pglease.Client, resource string, options ...pglease.AcquireOption) *pglease.Lease {
	t.Helper()
	lease, err := c.TryAcquire(t.Context(), resource, options...)
	if err != nil {
		t.Fatalf("TryAcquire(%q): %v", resource, err)
	}
	return lease
}

func wantState(t *testing.T, l *pglease.Lease, want pglease.State) {
	t.Helper()
	if got := l.State(); got != want {
		t.Fatalf("state is %v, want %v (%v left)", got, want, l.Remaining())
	}
}

func TestLeaseIsKeptWhileRenewalsAreConfirmed(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		lease := acquire(t, c, "r")
		for range 20 {
			time.Sleep(ttl)
			wantState(t, lease, pglease.Held)
		}
		if renewals := f.count("renew"); renewals < 60 || renewals > 72 {
			t.Errorf("%d renewals in 20 TTLs with an interval of TTL/3", renewals)
		}
	})
}

func TestSuspectThenLostByTheLocalTimerAlone_L1(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		lease := acquire(t, c, "r")
		states, stop := lease.States()
		defer stop()
		f.set(func(f *fakeAuthority) { f.silent = true })

		time.Sleep(ttl * 7 / 10)
		wantState(t, lease, pglease.Held)
		time.Sleep(ttl / 10)
		wantState(t, lease, pglease.Suspect)
		if err := lease.Admit(0); !errors.Is(err, pglease.ErrNotAdmitted) {
			t.Errorf("Admit while suspect: %v", err)
		}
		<-lease.Done() // nobody asked
		if held := time.Since(f.rows["r"].expires); held >= 0 {
			t.Errorf("lost %v after the database's own expiry", held)
		}
		if err := lease.Err(); !errors.Is(err, pglease.ErrLost) || !errors.Is(err, pglease.ErrUnreachable) {
			t.Errorf("Err: %v", err)
		}
		if s := <-states; s != pglease.Lost {
			t.Errorf("the stream's newest state is %v", s)
		}
		if _, open := <-states; open {
			t.Error("the stream is open after the final state")
		}
	})
}

func TestSuspectGoesBackToHeld_I6(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		lease := acquire(t, c, "r")
		token := lease.Token()
		f.set(func(f *fakeAuthority) { f.failing = errSilent })
		time.Sleep(ttl * 8 / 10)
		wantState(t, lease, pglease.Suspect)
		f.set(func(f *fakeAuthority) { f.failing = nil })
		time.Sleep(ttl / 10)
		wantState(t, lease, pglease.Held)
		if lease.Token() != token {
			t.Error("the token changed")
		}
	})
}

func TestTrustCountsFromBeforeTheRequest_L5(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		f.set(func(f *fakeAuthority) { f.delay = 3 * time.Second })
		lease := acquire(t, c, "r")
		want := ttl - ttl/100 - 3*time.Second
		if got := lease.Remaining(); got != want {
			t.Errorf("%v left after a grant that took 3 s, want %v", got, want)
		}
		time.Sleep(time.Second)
		if got := lease.Remaining(); got != want-time.Second {
			t.Errorf("%v left a second later", got)
		}
	})
}

func TestAdmitIsForUnitsThatFit(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, _ *fakeAuthority, c *pglease.Client) {
		lease := acquire(t, c, "r")
		if err := lease.Admit(ttl / 2); err != nil {
			t.Errorf("Admit(TTL/2) of a new lease: %v", err)
		}
		if err := lease.Admit(ttl); !errors.Is(err, pglease.ErrNotAdmitted) {
			t.Errorf("Admit(TTL): %v", err)
		}
	})
}

func TestRenewalGoesOnAfterTheCallsContextEnded_I7(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, _ *fakeAuthority, c *pglease.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		lease, err := c.Acquire(ctx, "r")
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		wantState(t, lease, pglease.Held)
	})
}

func TestASecondLeaseOfAResourceIsRenewed_I10(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		first := acquire(t, c, "r")
		f.set(func(f *fakeAuthority) { f.rows["r"].ended = "broken" })
		<-first.Done()
		second := acquire(t, c, "r")
		time.Sleep(3 * ttl)
		wantState(t, second, pglease.Held)
		wantState(t, first, pglease.Lost)
	})
}

func TestLossTellsItsCause(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		lease := acquire(t, c, "r")
		f.set(func(f *fakeAuthority) { f.rows["r"].ended = "broken" })
		<-lease.Done()
		var lost *pglease.LostError
		if err := lease.Err(); !errors.As(err, &lost) || !errors.Is(err, pglease.ErrBroken) || lost.By != "ada" || lost.Reason != "stuck" {
			t.Errorf("Err: %v", err)
		}
	})
}

func TestNothingIsSentAfterTheEnd_I9(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		lost, released := acquire(t, c, "lost"), acquire(t, c, "released")
		if err := released.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.set(func(f *fakeAuthority) { f.silent = true })
		<-lost.Done()
		f.set(func(f *fakeAuthority) { f.silent = false; f.calls = nil })
		if err := lost.Release(t.Context()); !errors.Is(err, pglease.ErrLost) {
			t.Errorf("Release of a lost lease: %v", err)
		}
		if err := released.Release(t.Context()); err != nil {
			t.Errorf("second Release: %v", err)
		}
		time.Sleep(5 * ttl)
		f.set(func(f *fakeAuthority) {
			if len(f.calls) > 0 {
				t.Errorf("sent: %v", f.calls)
			}
		})
	})
}

func TestMaxHoldEndsAForgottenLease(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{MaxHold: 5 * time.Minute}, func(t *testing.T, _ *fakeAuthority, c *pglease.Client) {
		lease := acquire(t, c, "r")
		time.Sleep(4 * time.Minute)
		wantState(t, lease, pglease.Held)
		<-lease.Done()
		if err := lease.Err(); !errors.Is(err, pglease.ErrMaxHold) {
			t.Errorf("Err: %v", err)
		}
	})
}

func TestManyLeasesShareStatements(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		leases := make([]*pglease.Lease, 2000)
		for i := range leases {
			leases[i] = acquire(t, c, fmt.Sprint("r", i))
		}
		time.Sleep(3 * ttl)
		for _, l := range leases {
			wantState(t, l, pglease.Held)
		}
		if n := f.count("renew"); n > 3*3*100 {
			t.Errorf("%d statements for 2,000 leases in 9 intervals", n)
		}
	})
}

func TestLimitsAreTypedErrors(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{MaxLeases: 2, MaxAcquires: 1}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		f.set(func(f *fakeAuthority) { f.delay = time.Second })
		var wg sync.WaitGroup
		wg.Go(func() { acquire(t, c, "a") })
		synctest.Wait()
		if _, err := c.TryAcquire(t.Context(), "b"); !errors.Is(err, pglease.ErrTooManyAcquires) {
			t.Errorf("while one is under way: %v", err)
		}
		wg.Wait()
		acquire(t, c, "b")
		if _, err := c.TryAcquire(t.Context(), "c"); !errors.Is(err, pglease.ErrTooManyLeases) {
			t.Errorf("with two held: %v", err)
		}
	})
}

func TestStatesAreObservedInOrder(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []pglease.State
	observer := pglease.ObserverFunc(func(e pglease.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == pglease.EventState {
			seen = append(seen, e.State)
		}
	})
	inBubble(t, pglease.Config{Observer: observer}, func(t *testing.T, _ *fakeAuthority, c *pglease.Client) {
		if err := acquire(t, c, "r").Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if want := []pglease.State{pglease.Held, pglease.Releasing, pglease.Released}; !slices.Equal(seen, want) {
		t.Errorf("observed %v, want %v", seen, want)
	}
}

// TestAnAttemptThatHangsCostsNoOtherItsLease: the keeper waits for the renewal of a long lease, while
// a short one is due.
func TestAnAttemptThatHangsCostsNoOtherItsLease(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{TTL: 5 * time.Minute, RequestTimeout: time.Minute}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		long := acquire(t, c, "long")
		short := acquire(t, c, "short", pglease.WithTTL(2*time.Second))
		f.set(func(f *fakeAuthority) { f.hung = "long" })
		<-long.Done()
		wantState(t, short, pglease.Held)
	})
}
