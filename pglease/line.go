package pglease

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
)

// Times of a client that waits. Its life is what the others give it when it falls silent while its
// session seems to live, as when it is frozen or cut off; a process that dies is known at once.
const (
	beatEvery  = 5 * time.Second
	clientLife = 3 * beatEvery
	linger     = 10 * time.Second // how long the session is kept when nobody waits any more
	earlyRings = 1024             // rings remembered whose waiter is not known yet
)

// grant is a lease that the database handed to a waiter.
type grant struct {
	token     fence.Token
	sent      time.Time // before the statement whose answer told of it
	remaining time.Duration
	ring      bool // no grant: only look, or try

	unconfirmed bool // a synchronous standby may not have it
}

// place is a waiter of this client.
type place struct {
	authority.Place
	woken chan grant // holds one; a grant is never dropped for a ring
	look  time.Time  // when to ask the database without having been told
}

// line is the part of a client that waits: a session that listens, and one goroutine that beats
// and looks for all waiters together. It exists while somebody waits.
type line struct {
	client *Client
	id     authority.ID
	key    int64
	ears   *ears

	mu      sync.Mutex
	places  map[authority.ID]*place // by request
	tickets map[int64]*place
	early   map[int64]struct{}
	idle    time.Time          // since when nobody waits
	running bool               // the goroutine lives
	stop    context.CancelFunc // ends it
	joined  chan struct{}      // closed when it has ended
	ready   chan struct{}      // closed when the client may join
	wake    chan struct{}      // an earlier look than the one it waits for was set
}

func newLine(c *Client) *line {
	var key [8]byte
	_, _ = rand.Read(key[:]) // never fails, see crypto/rand
	l := &line{
		client: c, id: authority.ID(NewRequestID()), key: int64(binary.BigEndian.Uint64(key[:]) | 1),
		places: map[authority.ID]*place{}, tickets: map[int64]*place{}, early: map[int64]struct{}{}, wake: make(chan struct{}, 1),
	}
	l.ears = &ears{line: l}
	return l
}

// enter adds a waiter before it joins, so that no grant to it is missed, and waits until the client
// has said that it lives.
func (l *line) enter(ctx context.Context, resource string, request authority.ID) (*place, error) {
	l.mu.Lock()
	if len(l.places) >= l.client.config.MaxWaiting {
		l.mu.Unlock()
		return nil, ErrQueueFull
	}
	p := &place{Place: authority.Place{Resource: resource, Request: request}, woken: make(chan grant, 1), look: time.Now().Add(time.Hour)}
	l.places[request] = p
	if !l.running {
		l.begin()
	}
	ready := l.ready
	l.mu.Unlock()
	select {
	case <-ready:
		return p, nil
	case <-ctx.Done():
		l.exit(p)
		return nil, context.Cause(ctx)
	}
}

// begin starts the goroutines, after those before have said farewell. l.mu is held.
func (l *line) begin() {
	ctx, stop := context.WithCancel(context.Background())
	before := l.joined
	l.running, l.stop, l.joined, l.ready = true, stop, make(chan struct{}), make(chan struct{})
	go func(ready, joined chan struct{}) {
		defer close(joined)
		if before != nil {
			<-before
		}
		l.run(ctx, ready)
	}(l.ready, l.joined)
}

// placed notes the ticket and when to look. A ring that came before is not lost.
func (l *line) placed(p *place, ticket int64, look time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tickets, p.Ticket)
	p.Ticket = ticket
	l.tickets[ticket] = p
	if _, rung := l.early[ticket]; rung {
		delete(l.early, ticket)
		p.tell(grant{ring: true})
	}
	l.lookIn(p, look)
}

// lookIn sets when to ask after a waiter. l.mu is held.
func (l *line) lookIn(p *place, after time.Duration) {
	p.look = time.Now().Add(after)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// exit removes a waiter.
func (l *line) exit(p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.places, p.Request)
	if l.tickets[p.Ticket] == p {
		delete(l.tickets, p.Ticket)
	}
	l.idle = time.Now()
}

// tell wakes the waiter. A grant replaces a ring; a ring is nothing new to one that has either.
func (p *place) tell(g grant) {
	for {
		select {
		case p.woken <- g:
			return
		default:
		}
		if g.ring {
			return
		}
		select {
		case old := <-p.woken:
			if !old.ring {
				g = old
			}
		default:
		}
	}
}

// rung takes a ring that was heard.
func (l *line) rung(ticket int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.tickets[ticket]; p != nil {
		p.tell(grant{ring: true})
		return
	}
	if len(l.early) >= earlyRings {
		clear(l.early)
	}
	l.early[ticket] = struct{}{}
}

// serve passes a hand-over on: in memory where the waiter is this client's, else by a ring.
func (l *line) serve(ctx context.Context, sent time.Time, next authority.Handover) {
	if next.Ticket == 0 {
		return
	}
	if next.Client != l.id {
		if err := l.client.auth.Ring(ctx, next.Client, next.Ticket); err != nil {
			l.client.config.Logger.Warn("a waiter could not be told; it will look by itself", "err", err)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.places[next.Request]; p != nil {
		p.tell(grant{token: next.Token, sent: sent, remaining: next.Remaining, ring: next.Token.IsZero(), unconfirmed: next.Unconfirmed})
	}
}

// run beats and looks until nobody has waited for a while.
func (l *line) run(ctx context.Context, ready chan struct{}) {
	l.ears.open(ctx)
	beat := l.beat(ctx)
	close(ready)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		if changed := l.ears.changed(); changed || !now.Before(beat) {
			beat = l.beat(ctx)
			l.lookAgain(changed)
		}
		due, next, done := l.due(now)
		if done {
			break
		}
		if len(due) > 0 {
			l.look(ctx, due)
			continue
		}
		timer.Reset(time.Until(earliest(next, beat)))
		select {
		case <-timer.C:
		case <-l.wake:
		case <-ctx.Done():
		}
	}
	l.end(ctx)
}

// end closes what run opened. The farewell is short: others give the client up by themselves.
func (l *line) end(ctx context.Context) {
	l.ears.close(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.client.config.RequestTimeout)
	defer cancel()
	if err := l.client.auth.Farewell(ctx, l.id); err != nil {
		l.client.config.Logger.Debug("no farewell", "err", err)
	}
}

// close ends the goroutines and waits for them.
func (l *line) close() {
	l.mu.Lock()
	stop, joined := l.stop, l.joined
	l.mu.Unlock()
	if stop != nil {
		stop()
		<-joined
	}
}

// beat says that the client lives and returns when to say it again. Without a session that others
// can see die, its life is short.
func (l *line) beat(ctx context.Context) time.Time {
	every, key := beatEvery, l.key
	if !l.ears.hearing() {
		every, key = l.client.config.PollEvery, 0
	}
	ctx, cancel := context.WithTimeout(ctx, l.client.config.RequestTimeout)
	defer cancel()
	if err := l.client.auth.Beat(ctx, l.id, key, 3*every); err != nil {
		l.client.config.Logger.Warn("waiting client could not say that it lives", "err", err)
		every /= 4
	}
	return time.Now().Add(every)
}

// lookAgain makes every waiter due: rings may have been missed.
func (l *line) lookAgain(missed bool) {
	if !missed {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.places {
		p.look = time.Now()
	}
}

// due returns the waiters to look after, or when the next one is. done tells that nobody has waited
// for a while, and that the goroutine is counted out.
func (l *line) due(now time.Time) (due []*place, next time.Time, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.places) == 0 {
		until := l.idle.Add(linger)
		if !now.Before(until) {
			l.running = false
			return nil, time.Time{}, true
		}
		return nil, until, false
	}
	next = now.Add(time.Hour)
	for _, p := range l.places {
		switch {
		case p.Ticket == 0: // not in line yet
		case !p.look.After(now):
			due = append(due, p)
		default:
			next = earliest(next, p.look)
		}
	}
	return due, next, false
}

// look asks how waiters stand, in one statement, and wakes those with news.
func (l *line) look(ctx context.Context, due []*place) {
	asked := make([]authority.Place, len(due))
	l.mu.Lock()
	for i, p := range due {
		asked[i] = p.Place
	}
	l.mu.Unlock()
	sent := time.Now()
	limited, cancel := context.WithTimeout(ctx, l.client.config.RequestTimeout)
	defer cancel()
	standings, err := l.client.auth.Watch(limited, asked)
	if err != nil && ctx.Err() == nil {
		l.client.config.Logger.Warn("waiters could not be looked after", "waiters", len(due), "err", err)
	}
	stands := make(map[authority.ID]authority.Standing, len(standings))
	for _, s := range standings {
		stands[s.Request] = s
	}
	free := map[string]bool{}
	l.mu.Lock()
	for _, p := range due {
		s, found := stands[p.Request]
		l.lookIn(p, l.next(s, err != nil))
		switch {
		case err != nil:
		case s.Granted:
			p.tell(grant{token: s.Token, sent: sent, remaining: s.Remaining, unconfirmed: s.Unconfirmed})
		case !found || !s.InLine:
			p.tell(grant{ring: true})
		case s.Remaining <= 0:
			free[p.Resource] = true
		}
	}
	l.mu.Unlock()
	for resource := range free {
		l.client.promote(ctx, resource)
	}
}

// next is when to look again: when the holder's lease would end, the first in line at once and the
// others somewhat later, who find it served; and in any case now and then, often without a session
// that hears.
func (l *line) next(s authority.Standing, failed bool) time.Duration {
	most := jitter(beatEvery)
	if failed || !l.ears.hearing() {
		most = jitter(l.client.config.PollEvery)
	}
	if failed {
		return most
	}
	expiry := max(s.Remaining, 20*time.Millisecond)
	if s.First {
		expiry += time.Duration(mathrand.Int64N(int64(10 * time.Millisecond)))
	} else {
		expiry += 100*time.Millisecond + time.Duration(mathrand.Int64N(int64(80*time.Millisecond)))
	}
	return min(most, expiry)
}

// jitter is d, give or take a fifth.
func jitter(d time.Duration) time.Duration {
	return d*4/5 + mathrand.N(d*2/5+1)
}

// promote serves the line of a resource that is free or expired.
func (c *Client) promote(ctx context.Context, resource string) {
	ctx, cancel := context.WithTimeout(ctx, c.config.RequestTimeout)
	defer cancel()
	sent := time.Now()
	next, err := c.auth.Promote(ctx, resource)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			c.config.Logger.Warn("the line could not be served", "resource", resource, "err", err)
		}
		return
	}
	c.line.serve(ctx, sent, next)
}
