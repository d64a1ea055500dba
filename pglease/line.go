package pglease

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
	"github.com/pglease/pglease/pglease/internal/mint"
)

// Times of a client that waits. Its life is what the others give it when it falls silent while its
// session seems to live, as when it is frozen or cut off; a process that dies is known at once.
const (
	beatEvery  = 5 * time.Second
	clientLife = 3 * beatEvery
	linger     = 10 * time.Second // how long the session is kept when nobody waits any more
	earlyRings = 1024             // rings remembered whose ticket is not known yet
)

// grant is a lease that the database handed to a waiter.
type grant struct {
	token     fence.Token
	sent      time.Time // before the statement whose answer told of it
	remaining time.Duration
	ring      bool // no grant: only look, or try
	proven    bool // the waiter's own client made it: nobody else looks whether the waiter lives

	unconfirmed bool // a synchronous standby may not have it
}

// place is a waiter of this client.
type place struct {
	authority.Place
	lease authority.ID // of the lease that it will be granted; a ring that proves it is believed
	ttl   time.Duration
	woken chan grant // holds one; a grant is never dropped for a ring
	look  time.Time  // when to ask the database without having been told
	told  bool       // that it is served
	index int        // among the looks, from 1; 0 when it is not one of them
	share bool       // another call waits with the same request, or did: what it is told may be over by then
	seen  time.Time  // when the last statement was sent that found it in line: what it is granted, is committed later

	barging bool // it is only rung, and not granted
	missed  int  // line.missed when it came, or was last placed
}

// line is the part of a client that waits: a session that listens, and one goroutine that beats
// and looks for all waiters together. It exists while somebody waits.
type line struct {
	client    *Client
	id        authority.ID
	key       int64
	ears      *ears
	ghosts    *ghosts
	leftovers *leftovers

	mu      sync.Mutex
	places  map[*place]struct{}
	looks   looks                     // those of the places that are in line
	asleep  time.Time                 // until when the goroutine sleeps; no time when it looks
	calls   map[authority.ID][]*place // the places of a request: more than one where calls share its id
	tickets map[int64]authority.ID    // the request of each place
	early   map[int64]authority.Ring
	missed  int                // how often rings may have been missed
	wait    *wait              // the session's in the server; nil while it does not wait there
	spare   []authority.ID     // of the leases that the next waiters will be granted
	recent  []string           // resources that were waited for, the last one first
	idle    time.Time          // since when nobody waits
	closed  bool               // nobody may wait any more
	hurry   bool               // there is no time for a farewell
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
		places: map[*place]struct{}{}, calls: map[authority.ID][]*place{}, tickets: map[int64]authority.ID{}, early: map[int64]authority.Ring{}, wake: make(chan struct{}, 1),
	}
	l.ears, l.ghosts = &ears{line: l}, &ghosts{line: l, watched: map[string]*handed{}}
	l.leftovers = &leftovers{client: c}
	return l
}

// enter adds a waiter before it joins, so that no grant to it is missed, and waits until the client
// has said that it lives.
func (l *line) enter(ctx context.Context, r *request) (*place, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, ErrClosed
	}
	if len(l.places) >= l.client.config.MaxWaiting {
		l.mu.Unlock()
		return nil, ErrQueueFull
	}
	p := &place{
		Place: authority.Place{Resource: r.Resource, Request: r.ID}, lease: l.nextLease(), ttl: r.TTL, barging: r.Barging,
		woken: make(chan grant, 1), missed: l.missed,
	}
	for _, other := range l.calls[r.ID] {
		other.share, p.share = true, true
	}
	l.places[p] = struct{}{}
	l.recently(r.Resource)
	l.calls[r.ID] = append(l.calls[r.ID], p)
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

// shares tells whether another call waits with the request of this one, or did.
func (l *line) shares(p *place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return p.share
}

// active tells whether somebody of this client waits, or did a moment ago.
func (l *line) active() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
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

// placed notes the ticket, when the statement was sent that took it, and when to look. A ring that
// came before is not lost.
func (l *line) placed(p *place, ticket int64, sent time.Time, look time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unmark(p)
	p.Ticket, p.seen = ticket, sent
	l.tickets[ticket] = p.Request
	if ring, rung := l.early[ticket]; rung {
		delete(l.early, ticket)
		p.hear(ring)
	}
	if p.missed != l.missed { // all were looked after when this one was not among them yet
		p.missed, look = l.missed, 0
	}
	l.lookIn(p, look)
}

// exit removes a waiter.
func (l *line) exit(p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.places, p)
	l.looks.remove(p)
	l.calls[p.Request] = slices.DeleteFunc(l.calls[p.Request], func(q *place) bool { return q == p })
	if len(l.calls[p.Request]) == 0 {
		delete(l.calls, p.Request)
		l.unmark(p)
	}
	l.idle = time.Now()
}

// unmark takes a waiter's ticket away from it. A server that has lost the last places in a crash may have
// given it to another. l.mu is held.
func (l *line) unmark(p *place) {
	if l.tickets[p.Ticket] == p.Request {
		delete(l.tickets, p.Ticket)
	}
}

// tell wakes the waiter. A grant replaces a ring; a ring is nothing new to one that has either.
func (p *place) tell(g grant) {
	p.told = p.told || !g.ring
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

// hear takes a ring. One that proves the lease is the grant itself, committed after the waiter was last seen in line.
// It may have been made before that, but not by more than a quarter of its TTL, or the ring would prove nothing; and
// of its TTL half is trusted at first. Any other only says: look.
func (p *place) hear(ring authority.Ring) {
	g := grant{ring: true}
	if ring.Fence > 0 && ring.Proof == authority.Prove(p.lease) {
		g = grant{token: mint.Token(p.Resource, ring.Fence, p.lease).(fence.Token), sent: p.seen, remaining: p.ttl}
	}
	p.tell(g)
}

// rung takes a ring that was heard.
func (l *line) rung(ring authority.Ring) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if request, known := l.tickets[ring.Ticket]; known {
		for _, p := range l.calls[request] {
			p.hear(ring)
		}
		return
	}
	if len(l.early) >= earlyRings {
		clear(l.early)
	}
	l.early[ring.Ticket] = ring
}

// serve passes a hand-over on: in memory where the waiter is this client's, else by a ring. A waiter that is not there
// has left; or it has the lease, because it was told before the reply was here that next comes from.
func (l *line) serve(ctx context.Context, sent time.Time, next authority.Handover) {
	if next.Ticket == 0 {
		return
	}
	if next.Client != l.id {
		if !next.Rung {
			if err := l.client.auth.Ring(ctx, next.Client, authority.RingOf(next, time.Since(sent))); err != nil {
				l.client.config.Logger.Warn("a waiter could not be told; it will look by itself", "err", err)
			}
		}
		l.ghosts.watch(next) //nolint:contextcheck // what it starts outlives this call
		return
	}
	l.mu.Lock()
	waiters := len(l.calls[next.Request])
	for _, p := range l.calls[next.Request] {
		p.tell(grant{token: next.Token, sent: sent, remaining: next.Remaining, ring: next.Token.IsZero(), proven: true, unconfirmed: next.Unconfirmed})
	}
	l.mu.Unlock()
	// In this order, and a waiter leaves the line only after it has the lease: who is not found there was given it by now.
	if waiters == 0 && !next.Token.IsZero() && !l.client.has(next.Token) {
		l.disown(ctx, next.Token)
	}
}

// disown releases what was granted to a request of this client that nobody waits for any more.
func (l *line) disown(ctx context.Context, token fence.Token) {
	sent := time.Now()
	_, next, err := l.client.auth.Release(ctx, authority.ReleaseRequest{Lease: token, Client: l.id})
	if err != nil {
		l.client.config.Logger.Warn("a lease that nobody waits for was not released; it ends with its TTL",
			"resource", token.Resource(), "err", err)
		return
	}
	l.serve(ctx, sent, next)
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
	l.mu.Lock()
	hurry := l.hurry
	l.mu.Unlock()
	if hurry {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.client.config.RequestTimeout)
	defer cancel()
	if err := l.client.auth.Farewell(ctx, l.id); err != nil {
		l.client.config.Logger.Debug("no farewell", "err", err)
	}
}

// close ends the goroutines and waits for them.
func (l *line) close(ctx context.Context) {
	l.mu.Lock()
	l.closed, l.hurry = true, ctx.Err() != nil
	defer l.ghosts.close()
	defer l.leftovers.close()
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
	every, session := beatEvery, l.ears.session()
	if session.Key == 0 {
		every = l.client.config.PollEvery
	}
	ctx, cancel := context.WithTimeout(ctx, l.client.config.RequestTimeout)
	defer cancel()
	if err := l.client.auth.Beat(ctx, l.id, session, 3*every); err != nil {
		l.client.config.Logger.Warn("waiting client could not say that it lives", "err", err)
		every /= 4
	} else {
		l.ears.announce(session)
	}
	return time.Now().Add(every)
}
