package jobs

import (
	"context"
	"sync"
	"time"
)

// EventKind names what happened in a worker.
type EventKind string

// Each event of one claim has Job, Attempt and Fence.
const (
	EventClaimed   EventKind = "claimed"   // a handler begins
	EventCompleted EventKind = "completed" // Duration: from the claim until the end was confirmed
	EventFailed    EventKind = "failed"    // the attempt failed with Err; State is ready or parked
	EventSnoozed   EventKind = "snoozed"   // the handler gave the job back for later
	EventReturned  EventKind = "returned"  // a stopping worker gave the job back
	EventStale     EventKind = "stale"     // the end of a claim was refused, by Err: another attempt has the job
	EventLost      EventKind = "lost"      // a handler's context was cancelled with Err: its claim is over, or not confirmed
	EventUnknown   EventKind = "unknown"   // the end of a claim could not be told, for Err; the job runs again
	EventCutOff    EventKind = "cut_off"   // a claim of Worker, not heard of any more, was ended; State is ready or parked

	EventHeartbeat      EventKind = "heartbeat"       // Jobs claims were extended; Duration: the round trip; Remaining: the least trust left just before
	EventHeartbeatLate  EventKind = "heartbeat_late"  // the same, and Remaining was below a third of the TTL
	EventHeartbeatError EventKind = "heartbeat_error" // a heartbeat for Jobs claims ended in Err

	EventPoll     EventKind = "poll"      // the worker looked, and claimed Jobs jobs; Rung: because a notification came
	EventPollOnly EventKind = "poll_only" // notifications do not arrive, for Err; polling finds the jobs
	EventError    EventKind = "error"     // the worker could not claim or tend, for Err; it tries again
)

// An Event is what an Observer is told. Fields that say nothing for a kind are zero.
type Event struct {
	Kind      EventKind
	At        time.Time
	Queue     string
	Job       int64
	Attempt   int
	Fence     int64
	Worker    string
	State     State
	Jobs      int
	Rung      bool
	Duration  time.Duration
	Remaining time.Duration
	Err       error
	Dropped   int // events that were dropped before this one, because the observer was slow
}

// An Observer is told of a worker's events, one at a time and in order, on a goroutine of their
// own. It cannot hold up a job, nor change what becomes of it: when it falls more than 4,096 events
// behind, events are dropped, and the next one tells how many. Run waits at its end until it has
// been told of all, but not for longer than Config.StopTimeout. A panic in it is not caught, and ends
// the process.
type Observer interface {
	Observe(Event)
}

// ObserverFunc makes a function an Observer.
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

const eventBuffer = 4096

// events hands events to an observer without ever waiting for it. A nil *events drops them.
type events struct {
	queue  chan Event
	joined chan struct{}

	mu      sync.Mutex
	dropped int
	closed  bool
}

func newEvents(observer Observer) *events {
	if observer == nil {
		return nil
	}
	e := &events{queue: make(chan Event, eventBuffer), joined: make(chan struct{})}
	go func() {
		defer close(e.joined)
		for event := range e.queue {
			observer.Observe(event)
		}
	}()
	return e
}

func (e *events) emit(event Event) {
	if e == nil {
		return
	}
	event.At = time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	event.Dropped = e.dropped
	select {
	case e.queue <- event:
		e.dropped = 0
	default:
		e.dropped++
	}
}

// close lets the observer catch up, and tells whether it did.
func (e *events) close(ctx context.Context) bool {
	if e == nil {
		return true
	}
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.queue)
	}
	e.mu.Unlock()
	select {
	case <-e.joined:
		return true
	case <-ctx.Done():
		return false
	}
}

// event begins an event of a claim.
func (c *Claim) event(kind EventKind) Event {
	return Event{Kind: kind, Queue: c.Queue, Job: c.ID, Attempt: c.Attempt, Fence: c.token.Fence()}
}
