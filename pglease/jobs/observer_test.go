package jobs_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pglease/pglease/pglease/jobs"
)

// record keeps all that an observer is told.
type record struct {
	mu     sync.Mutex
	events []jobs.Event
}

func (r *record) Observe(e jobs.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *record) of(job int64) (kinds []jobs.EventKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Job == job && e.Job != 0 {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

// find returns the first event of a kind.
func (r *record) find(kind jobs.EventKind) (jobs.Event, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.events, func(e jobs.Event) bool { return e.Kind == kind })
	if i < 0 {
		return jobs.Event{}, false
	}
	return r.events[i], true
}

func TestObserverIsToldWhatBecomesOfJobs(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	cause := errors.New("kaput")
	done := b.enqueue(jobs.Job{Payload: []byte(`"done"`)})[0]
	fails := b.enqueue(jobs.Job{Payload: []byte(`"fail"`)})[0]
	parks := b.enqueue(jobs.Job{Payload: []byte(`"fail"`), MaxAttempts: 1})[0]
	snoozes := b.enqueue(jobs.Job{Payload: []byte(`"snooze"`)})[0]
	stays := b.enqueue(jobs.Job{Payload: []byte(`"stay"`)})[0]
	var r record
	stop := works(t, b.pool, jobs.Config{
		Observer: &r, PollEvery: hours, RetryBase: time.Hour, RetryMax: time.Hour, StopTimeout: 300 * time.Millisecond, HeartbeatEvery: 50 * time.Millisecond,
	}, func(ctx context.Context, c *jobs.Claim) error {
		switch string(c.Payload) {
		case `"fail"`:
			return cause
		case `"snooze"`:
			return jobs.SnoozeFor(time.Hour)
		case `"stay"`:
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	for _, id := range []int64{done, fails, parks, snoozes} {
		until(t, "it has ended", func() bool { return len(r.of(id)) == 2 })
	}
	until(t, "hearts beat", func() bool { _, ok := r.find(jobs.EventHeartbeat); return ok })
	stop()
	for id, want := range map[int64]jobs.EventKind{
		done: jobs.EventCompleted, fails: jobs.EventFailed, parks: jobs.EventFailed, snoozes: jobs.EventSnoozed, stays: jobs.EventReturned,
	} {
		if got := r.of(id); !slices.Equal(got, []jobs.EventKind{jobs.EventClaimed, want}) {
			t.Errorf("job %d: %v, want claimed and %s", id, got, want)
		}
	}
	states := map[int64]jobs.State{}
	for _, e := range r.events {
		if e.Kind == jobs.EventFailed {
			states[e.Job] = e.State
			if !errors.Is(e.Err, cause) || e.Attempt != 1 || e.Fence == 0 || e.Duration <= 0 || e.Queue != queue || e.At.IsZero() {
				t.Errorf("failed: %+v", e)
			}
		}
	}
	if states[fails] != jobs.Ready || states[parks] != jobs.Parked {
		t.Errorf("states %v", states)
	}
	if e, ok := r.find(jobs.EventPoll); !ok || e.Jobs != 5 {
		t.Errorf("poll: %+v", e)
	}
	if e, _ := r.find(jobs.EventHeartbeat); e.Jobs < 1 || e.Remaining < jobs.DefaultTTL/3 || e.Duration <= 0 {
		t.Errorf("heartbeat: %+v", e)
	}
}

// A claim that was lost is told when it is lost, and when its end is refused.
func TestObserverIsToldOfStaleClaims_J2(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	id := b.enqueue(jobs.Job{})[0]
	var r record
	begun, goOn := make(chan struct{}), make(chan struct{})
	// It has no hand free, so that it does not claim the job again before the rival does.
	stop := works(t, b.pool, jobs.Config{Observer: &r, PollEvery: hours, TTL: 5 * time.Minute, HeartbeatEvery: time.Minute, Concurrency: 1},
		func(context.Context, *jobs.Claim) error {
			begun <- struct{}{}
			<-goOn
			return nil
		})
	<-begun
	if b.cutOff() != 1 {
		t.Fatal("it was not cut off")
	}
	rival := b.one()
	close(goOn)
	until(t, "it is told", func() bool { return len(r.of(id)) == 2 })
	stop()
	var stale *jobs.StaleClaimError
	e, ok := r.find(jobs.EventStale)
	if !ok || !errors.As(e.Err, &stale) || stale.Current != rival.Token().Fence() || stale.Fence != e.Fence || e.Attempt != 1 {
		t.Errorf("got %+v of %v", e, r.of(id))
	}
	b.done(rival)
}

// Claims of the dead, and notifications.
func TestObserverIsToldOfTheDeadAndOfTheBell(t *testing.T) {
	t.Parallel()
	b := setUp(t, jobs.Config{Owner: "the late", TTL: jobs.MinTTL})
	var r record
	id := b.enqueue(jobs.Job{MaxAttempts: 1})[0]
	b.one()
	stop := works(t, b.pool, jobs.Config{Observer: &r, PollEvery: hours}, func(context.Context, *jobs.Claim) error { return nil })
	until(t, "it was cut off", func() bool { return len(r.of(id)) == 1 })
	if e, _ := r.find(jobs.EventCutOff); e.Worker != "the late" || e.State != jobs.Parked || e.Fence == 0 {
		t.Errorf("cut off: %+v", e)
	}
	until(t, "the worker waits", func() bool { return value[bool](b, "SELECT coalesce(bool_or(waits), false) FROM pglease.job_bell") })
	rung := b.enqueue(jobs.Job{})[0]
	until(t, "it was rung for", func() bool { return len(r.of(rung)) == 2 })
	stop()
	if !slices.ContainsFunc(r.events, func(e jobs.Event) bool { return e.Kind == jobs.EventPoll && e.Rung }) {
		t.Errorf("no poll after the bell: %+v", r.events)
	}
	// Which poll brings the job is open: the bell may ring while another is under way.
	if !slices.ContainsFunc(r.events, func(e jobs.Event) bool { return e.Kind == jobs.EventPoll && e.Jobs == 1 }) {
		t.Errorf("no poll with the job: %+v", r.events)
	}
}

// An observer that hangs holds up no job. What it missed is counted.
func TestObserverCannotBlock(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	const total = 3000 // two events each, more than are kept
	b.exec("INSERT INTO pglease.job (queue, state, max_attempts, payload) SELECT $1, 'ready', 3, '{}' FROM generate_series(1, $2::int)", queue, total)
	hang := make(chan struct{})
	var told, dropped atomic.Int64 // of jobs, and in all
	stop := works(t, b.pool, jobs.Config{
		Concurrency: 500, PollEvery: 50 * time.Millisecond,
		Observer: jobs.ObserverFunc(func(e jobs.Event) {
			<-hang
			dropped.Add(int64(e.Dropped))
			if e.Job != 0 {
				told.Add(1)
			}
		}),
	}, func(context.Context, *jobs.Claim) error { return nil })
	until(t, "all are done", func() bool { return value[int](b, "SELECT count(*) FROM pglease.job WHERE state = 'done'") == total })
	close(hang)
	until(t, "the observer has caught up", func() bool { return told.Load() > 3000 })
	b.eventually(b.enqueue(jobs.Job{})[0], jobs.Done)
	stop()
	// How many were dropped depends on how many of the last were on their way when the observer woke.
	if dropped.Load() == 0 || told.Load()+dropped.Load() < 2*total {
		t.Errorf("told of %d events of jobs, %d were dropped", told.Load(), dropped.Load())
	}
}

// Nor does it hold up the worker's end.
func TestObserverThatNeverReturns(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	stop := works(t, b.pool, jobs.Config{StopTimeout: time.Millisecond, Observer: jobs.ObserverFunc(func(jobs.Event) { <-hang })},
		func(context.Context, *jobs.Claim) error { return nil })
	b.eventually(b.enqueue(jobs.Job{})[0], jobs.Done)
	stop()
}
