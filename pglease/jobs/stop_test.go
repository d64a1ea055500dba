package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// A worker that is told to stop lets its handlers go on for a while, and gives back the rest.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	finished := b.enqueue(jobs.Job{Payload: []byte(`"finished"`)})[0]
	returned := b.enqueue(jobs.Job{Payload: []byte(`"returned"`)})[0]
	begun := make(chan struct{}, 2)
	goOn := make(chan struct{})
	cause := make(chan error, 1)
	stop := works(t, b.pool, jobs.Config{PollEvery: hours, StopTimeout: 300 * time.Millisecond},
		func(ctx context.Context, c *jobs.Claim) error {
			begun <- struct{}{}
			if c.ID == finished {
				<-goOn
				return nil
			}
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return ctx.Err()
		})
	<-begun
	<-begun
	close(goOn)
	stop()
	if err := <-cause; !errors.Is(err, jobs.ErrStopping) {
		t.Errorf("cause: %v", err)
	}
	b.is(finished, jobs.Done)
	if info := b.is(returned, jobs.Ready); info.Attempt != 0 || info.LastError != "" {
		t.Errorf("got %+v", info)
	}
	if n := value[int](b, "SELECT count(*) FROM pglease.job_bell"); n != 0 {
		t.Errorf("%d bells are left", n)
	}
}

// Who loses the claim is told by the next heartbeat, and what it then says counts for nothing.
func TestLostClaimEndsTheContext_J2(t *testing.T) {
	t.Parallel()
	b := setUp(t, jobs.Config{TTL: time.Hour})
	id := b.enqueue(jobs.Job{})[0]
	begun, cause := make(chan *jobs.Claim, 100), make(chan error, 100)
	stop := works(t, b.pool, jobs.Config{PollEvery: hours, TTL: 20 * time.Second, HeartbeatEvery: 50 * time.Millisecond},
		func(ctx context.Context, c *jobs.Claim) error {
			begun <- c
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil
		})
	<-begun
	var current *jobs.Claim
	until(t, "another has claimed it", func() bool {
		// The heartbeat may have extended it again, or the worker itself have claimed it again.
		b.exec("UPDATE pglease.job SET expires_at = clock_timestamp() - interval '1 second' WHERE state = 'running'")
		if _, err := b.Tend(t.Context()); err != nil {
			t.Fatal(err)
		}
		if claims := b.claim(1); len(claims) == 1 {
			current = claims[0]
		}
		return current != nil
	})
	if err := <-cause; !errors.Is(err, jobs.ErrStaleClaim) {
		t.Errorf("cause: %v", err)
	}
	stop()
	if info := b.is(id, jobs.Running); info.Fence != current.Token().Fence() {
		t.Errorf("the stale worker changed the job: %+v", info)
	}
	b.done(current)
}

// No reply and no error is needed: the claim's time is over by the process's own clock.
func TestSilentNetworkEndsTheContext_L1(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t, migrations.Jobs)
	faults := pgleasetest.NewFaults()
	pool := faults.Pool(t, url)
	b := setUpOn(t, pools.Open(t, url, pools.Conns(4)))
	b.enqueue(jobs.Job{})
	cause := make(chan error, 1)
	stop := works(t, pool, jobs.Config{PollEvery: hours, TTL: time.Second}, func(ctx context.Context, c *jobs.Claim) error {
		if c.Attempt > 1 {
			return nil
		}
		faults.Freeze()
		<-ctx.Done()
		cause <- context.Cause(ctx)
		faults.Unfreeze()
		return nil
	})
	if err := <-cause; !errors.Is(err, jobs.ErrUnconfirmed) {
		t.Errorf("cause: %v", err)
	}
	stop()
}

// Handlers that hold every connection of the pool do not cost their claims.
func TestDrainedPoolKeepsClaims_L4(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t, migrations.Jobs)
	pool := pools.Open(t, url, pools.Conns(2))
	b := setUpOn(t, pools.Open(t, url, pools.Conns(4)))
	id := b.enqueue(jobs.Job{})[0]
	works(t, pool, jobs.Config{PollEvery: hours, TTL: 20 * time.Second, HeartbeatEvery: 50 * time.Millisecond}, func(ctx context.Context, c *jobs.Claim) error {
		one, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer one.Release()
		two, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer two.Release()
		before := value[time.Time](b, "SELECT expires_at FROM pglease.job")
		until(t, "several heartbeats have come", func() bool { //nolint:contextcheck // it has the test's
			return value[bool](b, "SELECT expires_at > $1::timestamptz + interval '500 milliseconds' FROM pglease.job", before)
		})
		if c.Remaining() == 0 {
			t.Error("the claim ran out")
		}
		return ctx.Err()
	})
	if info := b.eventually(id, jobs.Done); info.Attempt != 1 {
		t.Errorf("got %+v", info)
	}
}

// What was committed counts, whatever became of the reply.
func TestLostReplies_U1_U2(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t, migrations.Jobs)
	faults := pgleasetest.NewFaults()
	pool := faults.Pool(t, url)
	b := setUpOn(t, pool, jobs.Config{TTL: time.Second})
	named := func(name string) func(string) bool {
		return func(sql string) bool { return strings.HasPrefix(sql, "-- name: "+name+" ") }
	}
	id := b.enqueue(jobs.Job{})[0]
	faults.LoseNextReply(named("Claim"))
	if claims, err := b.Claim(t.Context(), queue, 1); err == nil {
		t.Fatalf("claimed %v", claims)
	}
	b.is(id, jobs.Running)
	b.cutOff() // it runs again by itself, as if its worker had died
	claim := b.one()
	if claim.Attempt != 2 {
		t.Errorf("attempt %d", claim.Attempt)
	}
	faults.LoseNextReply(named("CompleteOne"))
	if err := b.Complete(t.Context(), claim); err == nil || errors.Is(err, jobs.ErrStaleClaim) {
		t.Errorf("got %v", err)
	}
	b.done(claim) // again, under the same claim
	b.is(id, jobs.Done)

	// A worker finds out by itself.
	second := b.enqueue(jobs.Job{})[0]
	faults.LoseNextReply(named("CompleteOne"))
	works(t, pool, jobs.Config{PollEvery: 50 * time.Millisecond}, func(context.Context, *jobs.Claim) error { return nil })
	if info := b.eventually(second, jobs.Done); info.Attempt != 1 {
		t.Errorf("got %+v", info)
	}
}
