package pglease

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pglease/pglease/pglease/internal/authority"
)

// How a client whose waiters are served often has its session wait in the server, from where it is woken alone. See
// Config.DirectWake, and the function lease_await.

const (
	hotFor      = time.Second // after a waiter was served, the next is expected
	longestWait = time.Second // of one statement, which keeps a snapshot
	shareOfTTL  = 6           // a wait takes at most one sixth of it, so that little is gone of what is granted at its end

	spareLeases = 8   // ids for those who come to wait while the session does
	mostRecent  = 8   // resources that are looked up as often as the session wakes
	mostPlaces  = 256 // whose ids are sent each time

	// beginsWithin is how soon a waiter is looked after that a wait does not list, in case it was served before the wait
	// began in the server; and again after twice as long, and so on.
	beginsWithin = 50 * time.Millisecond

	// mostMissed is how many rings in a row may come behind a wait that they should have ended. One may be of
	// a release that came in the instant in which the wait was over.
	mostMissed = 2
)

// wait is one of the session, in the server.
type wait struct {
	authority.Awaited
	sent time.Time
}

var errMissed = errors.New("rings came behind waits that nobody ended")

// direct is how the session can be woken.
type direct struct {
	process   int32 // the server's, of a session that can be roused; else 0
	announced int32 // as the others know it
	missed    int   // rings in a row that did not end the wait
	told      bool  // that it cannot be roused
}

// ready makes the session one that can be roused, where that is wanted and can be had.
func (e *ears) ready(ctx context.Context, session authority.Listener) {
	if !e.line.client.config.DirectWake {
		return
	}
	process, err := session.Rousable(ctx)
	if err != nil {
		e.notDirect(err)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.direct.process, e.direct.missed = process, 0
}

// notDirect leaves it at notifications for this session, and says once why.
func (e *ears) notDirect(err error) {
	e.mu.Lock()
	told := e.direct.told
	e.direct.process, e.direct.told = 0, true
	e.mu.Unlock()
	if !told {
		e.line.client.config.Logger.Warn("the listening session cannot be woken directly; it is notified", "err", err)
	}
}

// session is what a beat tells of it. The zero Session: there is none.
func (e *ears) session() (s authority.Session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hears {
		s = authority.Session{Key: e.line.key, Process: e.direct.process}
	}
	return s
}

// announce notes what the others have been told.
func (e *ears) announce(s authority.Session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.direct.announced = s.Process
}

// awaited is what to wait for in the server, where that is worth it. Who serves a waiter must know of the session: its
// notification would be heard only when the wait is over.
func (e *ears) awaited(served time.Time) (a authority.Awaited, ok bool) {
	e.mu.Lock()
	known := e.direct.process != 0 && e.direct.process == e.direct.announced
	e.mu.Unlock()
	if !known || time.Since(served) > hotFor {
		return a, false
	}
	return e.line.awaited()
}

// await waits in the server, and tells whether a waiter was served.
func (e *ears) await(ctx context.Context, session authority.Listener, a authority.Awaited) (served bool, err error) {
	sent := time.Now()
	limited, cancel := context.WithTimeout(ctx, a.Most+e.line.client.config.RequestTimeout)
	defer cancel()
	answer, err := session.Await(limited, a)
	e.line.awake()
	if err != nil {
		return false, err
	}
	e.line.awarded(sent, answer)
	for _, ring := range answer.Rings {
		e.line.rung(ring)
		served = served || ring.Fence > 0
	}
	e.judge(a, answer)
	if answer.Roused && len(answer.Grants) == 0 { // by one that was not listed
		e.line.lookNow()
	}
	return served || len(answer.Grants) > 0, nil
}

// judge sees whether the session is roused when it should be.
func (e *ears) judge(a authority.Awaited, answer authority.Awaiting) {
	late := answer.Slept && slices.ContainsFunc(answer.Rings, func(r authority.Ring) bool { return e.line.expected(a, r) })
	e.mu.Lock()
	switch {
	case answer.Roused:
		e.direct.missed = 0
	case late:
		e.direct.missed++
	}
	missed := e.direct.missed
	e.mu.Unlock()
	if missed >= mostMissed {
		e.notDirect(errMissed)
	}
}

// nextLease returns an id for the lease that the next waiter will be granted. The session may be waiting for it
// already. l.mu is held.
func (l *line) nextLease() authority.ID {
	if !l.client.config.DirectWake {
		return authority.ID(NewRequestID())
	}
	for len(l.spare) <= spareLeases {
		l.spare = append(l.spare, authority.ID(NewRequestID()))
	}
	id := l.spare[0]
	l.spare = l.spare[1:]
	return id
}

// recently notes a resource that is waited for. l.mu is held.
func (l *line) recently(resource string) {
	if !l.client.config.DirectWake {
		return
	}
	if i := slices.Index(l.recent, resource); i >= 0 {
		l.recent = slices.Delete(l.recent, i, i+1)
	}
	l.recent = slices.Insert(l.recent, 0, resource)
	l.recent = l.recent[:min(len(l.recent), mostRecent)]
}

// awaited is what the client may be granted, if that is little enough to wait for. A barging waiter is only rung, and
// may be in the instant before the wait begins, so that nobody would end it.
func (l *line) awaited() (a authority.Awaited, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.places) > mostPlaces {
		return a, false
	}
	a = authority.Awaited{
		Key: l.key, Resources: slices.Clone(l.recent), Leases: slices.Clone(l.spare), Most: min(longestWait, l.client.config.TTL/shareOfTTL),
	}
	for p := range l.places {
		switch {
		case p.told: // it is on its way out, and is granted nothing more
		case p.barging || !slices.Contains(l.recent, p.Resource):
			return a, false
		default:
			a.Leases = append(a.Leases, p.lease)
			a.Most = min(a.Most, p.ttl/shareOfTTL)
		}
	}
	l.wait = &wait{a, time.Now()}
	return a, true
}

// awake notes that the wait is over that awaited began.
func (l *line) awake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait = nil
}

// unlisted tells of a waiter that came after the session was sent to wait, for others. One that is served while the
// session sleeps has it woken. One that is served before the wait begins in the server is notified, and that
// notification is behind the wait: it is to be looked after. When it begins is not known, so a look may be too early,
// and the next one follows after as long again as the wait takes by then. l.mu is held.
func (l *line) unlisted(p *place) (look time.Duration, unlisted bool) {
	if l.wait == nil || !p.barging && slices.Contains(l.wait.Resources, p.Resource) && slices.Contains(l.wait.Leases, p.lease) {
		return 0, false
	}
	return max(beginsWithin, time.Since(l.wait.sent)), true
}

// expected tells whether a ring is of a grant that the session waited for.
func (l *line) expected(a authority.Awaited, ring authority.Ring) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.calls[l.tickets[ring.Ticket]], func(p *place) bool {
		return ring.Fence > 0 && ring.Proof == authority.Prove(p.lease) && slices.Contains(a.Leases, p.lease) && slices.Contains(a.Resources, p.Resource)
	})
}

// awarded takes the grants that the session waited for; sent is when it began to. What is left of one is counted from
// then, by the database's clock; and it is at most the TTL from when the waiter was last seen without it, should that
// clock have been set.
func (l *line) awarded(sent time.Time, answer authority.Awaiting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range answer.Grants {
		for p := range l.places {
			if p.lease != authority.ID(g.Token.LeaseID()) || p.Resource != g.Token.Resource() || p.told {
				continue
			}
			most := p.ttl + max(p.seen.Sub(sent), 0)
			p.tell(grant{token: g.Token, sent: sent, remaining: min(g.Remaining, most), unconfirmed: answer.Unconfirmed})
			for _, same := range l.calls[p.Request] { // those that share its request look
				if same != p {
					same.tell(grant{ring: true})
				}
			}
		}
	}
}

// lookNow has all waiters looked after at once.
func (l *line) lookNow() {
	l.lookAgain(true)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
