package pglease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pglease/pglease/pglease/fence"
)

// A Lease is a resource that was granted to this process for a time. The client renews it until
// it is released or lost. Its methods may be called from any goroutine.
//
// What a Lease says of itself is judged by this process's monotonic clock at the moment of the
// call, never by a flag that somebody should have set: after a pause the first question gets the
// true answer.
type Lease struct {
	client *Client
	token  fence.Token
	timing timing
	since  time.Time // the grant, as this process saw it
	done   chan struct{}

	mu       sync.Mutex
	state    State
	deadline time.Time     // trusted until
	timer    *time.Timer   // wakes the lease for its next transition
	wakes    time.Time     // when the timer does that
	flight   chan struct{} // closed when the renewal under way has returned; nil when none is
	inDoubt  bool          // the database's clock was set forward since the last renewal
	doubted  time.Time     // when that was noticed
	awaited  bool          // somebody waits for the resource, or is likely to
	unproven bool          // was at first: another process handed it over, and would end it where this one looked dead
	last     error         // the last renewal's failure, nil after a success
	err      error         // why it is over
	watchers map[*watcher]struct{}
	releases int // calls of Release and HandOver since it was held

	due due // guarded by the keeper's mutex
}

// timing is what the configuration means for one lease.
type timing struct {
	ttl, renewEvery, unitOfWork time.Duration
	drift                       float64
}

func (c Config) timing(ttl time.Duration) timing {
	scale := float64(ttl) / float64(c.TTL)
	return timing{
		ttl:        ttl,
		renewEvery: time.Duration(float64(c.RenewEvery) * scale),
		unitOfWork: time.Duration(float64(c.UnitOfWork) * scale),
		drift:      c.ClockDrift,
	}
}

// trust is how long a lease may be trusted that had remaining left by the database's clock,
// counted from before the request was sent. A database clock that was set back may report more
// than the TTL; nobody was promised that.
func (t timing) trust(remaining time.Duration) time.Duration {
	return time.Duration(float64(min(remaining, t.ttl)) * (1 - t.drift))
}

// newLease makes the handle of a grant. The caller registers it, then calls start.
func newLease(c *Client, token fence.Token, t timing, sent time.Time, remaining time.Duration) *Lease {
	l := &Lease{
		client: c, token: token, timing: t, since: time.Now(), done: make(chan struct{}),
		state: Acquiring, deadline: sent.Add(t.trust(remaining)),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakes = l.deadline.Add(1 - t.unitOfWork) // as start will want it
	l.timer = time.AfterFunc(l.wakes.Sub(l.since), l.wake)
	return l
}

// start begins the lease's own time.
func (l *Lease) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Acquiring {
		l.enter(Held, nil)
	}
	l.settle(time.Now())
}

// wake is the timer's call.
func (l *Lease) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakes = time.Time{}
	l.settle(time.Now())
}

// settle brings the state up to the clock and sets the timer for the next transition. l.mu is held.
func (l *Lease) settle(now time.Time) {
	if l.state.Over() {
		return
	}
	left := l.deadline.Sub(now)
	short := left < l.timing.unitOfWork || l.inDoubt
	switch {
	case left <= 0:
		l.lose(l.expiry())
		return
	case l.state == Held && short:
		l.enter(Suspect, nil)
	case l.state == Suspect && !short:
		l.enter(Held, nil)
	}
	next := l.deadline
	if l.state == Held {
		next = next.Add(1 - l.timing.unitOfWork)
	}
	if !next.Equal(l.wakes) {
		l.wakes = next
		l.timer.Reset(next.Sub(now))
	}
}

// expiry is the loss by the local clock. l.mu is held.
func (l *Lease) expiry() *LostError {
	switch {
	case l.pastMaxHold(time.Now()):
		return &LostError{Cause: ErrMaxHold}
	case l.last == nil || errors.Is(l.last, errRowLocked):
		return &LostError{Cause: ErrExpired, Last: l.last}
	}
	return &LostError{Cause: ErrUnreachable, Last: l.last}
}

// lose ends the lease. l.mu is held.
func (l *Lease) lose(why *LostError) {
	if !l.state.Over() {
		l.end(Lost, &Error{Op: "hold", Resource: l.token.Resource(), Err: why})
	}
}

// end enters a final state. l.mu is held.
func (l *Lease) end(s State, err error) {
	l.err = err
	l.timer.Stop()
	l.enter(s, err)
	close(l.done)
	l.client.forget(l)
}

// enter changes the state and tells everybody. l.mu is held.
func (l *Lease) enter(s State, err error) {
	from := l.state
	l.state = s
	for w := range l.watchers {
		w.tell(s, err)
	}
	l.client.events.emit(Event{
		Kind: EventState, Resource: l.token.Resource(), Owner: l.client.config.Owner, Fence: l.token.Fence(),
		From: from, State: s, Err: err,
	})
}

// Token is what the protected resource must be given with each write.
func (l *Lease) Token() fence.Token { return l.token }

// Resource is the name of what was granted.
func (l *Lease) Resource() string { return l.token.Resource() }

// TTL is how long the lease lives without renewal.
func (l *Lease) TTL() time.Duration { return l.timing.ttl }

// Done is closed when the lease is over, lost or released.
func (l *Lease) Done() <-chan struct{} { return l.done }

// Err is nil until the lease is over. Then it matches ErrReleased, or ErrLost and its cause.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle(time.Now())
	return l.err
}

// State is where the lease is in its life, now.
func (l *Lease) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle(time.Now())
	return l.state
}

// Remaining is how long the lease may still be trusted, zero when it is over or being released. It counts from
// before the last confirmed renewal was sent, less the allowance for clock drift.
func (l *Lease) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.settle(now)
	if l.state.Over() || l.state == Releasing {
		return 0
	}
	return l.deadline.Sub(now)
}

// Admit asks whether a unit of work that takes d may begin. The error is nil; or it matches
// ErrNotAdmitted where less than d, or less than Config.UnitOfWork, is left, and a renewal may
// still mend that; or it is the error of Err.
//
// A yes is a promise about time, not about the resource: the write itself must carry the Token.
func (l *Lease) Admit(d time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.settle(now)
	switch {
	case l.err != nil:
		return l.err
	case l.state != Held || l.deadline.Sub(now) < d:
		return &Error{Op: "admit", Resource: l.token.Resource(), Err: ErrNotAdmitted}
	}
	return nil
}

// pastMaxHold tells whether renewing has come to an end.
func (l *Lease) pastMaxHold(now time.Time) bool {
	limit := l.client.config.MaxHold
	return limit > 0 && now.Sub(l.since) >= limit
}

// renewed takes a confirmation into account, and tells whether the lease is still in doubt. A lease
// that is over stays over.
func (l *Lease) renewed(c confirmation) (inDoubt bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.settle(now)
	if l.state.Over() {
		return false
	}
	l.client.events.emit(Event{
		Kind: EventRenewed, Resource: l.token.Resource(), Owner: l.client.config.Owner, Fence: l.token.Fence(),
		State: l.state, Duration: now.Sub(c.sent), Remaining: l.deadline.Sub(now),
	})
	l.last, l.awaited = nil, c.awaited
	l.inDoubt = l.inDoubt && !c.stepped && c.sent.Before(l.doubted)
	l.deadline = c.sent.Add(l.timing.trust(c.remaining))
	l.settle(now)
	return l.inDoubt
}

// confirmation is what a renewal's reply says of a lease: at some moment after it was sent, so much
// was left.
type confirmation struct {
	sent      time.Time
	remaining time.Duration
	awaited   bool // somebody waits for the resource
	stepped   bool // this reply showed that the database's clock had been set, so it was made after that
}

// renewFailed remembers why, for the case that the trust runs out.
func (l *Lease) renewFailed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = err
}

// takeOff marks a renewal as under way, or says that none may be sent: after the lease's end or
// the beginning of its release nothing of it reaches the database.
func (l *Lease) takeOff(flight chan struct{}) (deadline time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.settle(now)
	if l.state != Held && l.state != Suspect || l.pastMaxHold(now) {
		return time.Time{}, false
	}
	l.flight = flight
	return l.deadline, true
}

// landed ends what takeOff began.
func (l *Lease) landed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flight = nil
}

// lostTo ends the lease because the database said so.
func (l *Lease) lostTo(why *LostError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle(time.Now())
	l.lose(why)
}

// grounded waits until no renewal of the lease is under way.
func (l *Lease) grounded(ctx context.Context) error {
	l.mu.Lock()
	flight := l.flight
	l.mu.Unlock()
	if flight == nil {
		return nil
	}
	select {
	case <-flight:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
