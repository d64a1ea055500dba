package pglease

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// EventKind names what happened.
type EventKind string

const (
	EventAcquired     EventKind = "acquired"      // Duration: from the call to the grant
	EventWaiting      EventKind = "waiting"       // an acquire took a place in line, with Ahead before it
	EventHeld         EventKind = "held"          // an acquire was refused; Duration as above
	EventAcquireError EventKind = "acquire_error" // an acquire ended in Err
	EventRenewed      EventKind = "renewed"       // Duration: the round trip; Remaining: the trust left just before it was confirmed
	EventRenewError   EventKind = "renew_error"   // a renewal of Leases leases ended in Err
	EventState        EventKind = "state"         // From became State; Err where the lease is over
	EventReleased     EventKind = "released"      // Duration: how long it was held
	EventReleaseError EventKind = "release_error" // a release ended in Err; the lease ends with its TTL
	EventPollOnly     EventKind = "poll_only"     // no listening session can be had, for Err; waiting goes on by polling
	EventClockStep    EventKind = "clock_step"    // the database's clock was set by Duration, or another server answers
)

// An Event is what an Observer is told. Fields that say nothing for a kind are zero.
type Event struct {
	Kind      EventKind
	At        time.Time
	Resource  string
	Owner     string
	Fence     int64
	From      State
	State     State
	Duration  time.Duration
	Remaining time.Duration
	Leases    int
	Ahead     int
	Err       error
	Dropped   int // events that were dropped before this one, because the observer was slow
}

// An Observer is told of events, one at a time and in order, on a goroutine of the client. It
// cannot hold up a lease: when it falls more than 4,096 events behind, events are dropped, and the
// next one tells how many. Close waits, within its context, until it has been told of all.
type Observer interface {
	Observe(Event)
}

// ObserverFunc makes a function an Observer.
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

const eventBuffer = 4096

// events hands events to an observer without ever waiting for it.
type events struct {
	observer Observer
	queue    chan Event
	joined   chan struct{}

	mu      sync.Mutex
	dropped int
	closed  bool
}

func newEvents(observer Observer) *events {
	e := &events{observer: observer}
	if observer == nil {
		return e
	}
	e.queue, e.joined = make(chan Event, eventBuffer), make(chan struct{})
	go func() {
		defer close(e.joined)
		for event := range e.queue {
			observer.Observe(event)
		}
	}()
	return e
}

func (e *events) emit(event Event) {
	if e.observer == nil {
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

// close lets the observer catch up and ends its goroutine.
func (e *events) close(ctx context.Context) error {
	if e.observer == nil {
		return nil
	}
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.queue)
	}
	e.mu.Unlock()
	select {
	case <-e.joined:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the observer did not return: %w", context.Cause(ctx))
	}
}
