package pglease

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pglease/pglease/pglease/internal/authority"
)

// Times of the listening session.
const (
	pingEvery   = 15 * time.Second
	testTime    = 2 * time.Second // for the client's own test ring to come back
	leastPause  = 50 * time.Millisecond
	mostPause   = 10 * time.Second
	leastDeaf   = 5 * time.Second // after the first test ring that did not come: the server may be busy
	mostDeaf    = 5 * time.Minute // after many, or a pooler that showed itself
	testTicket  = 0
	rememberFor = time.Minute // an outage that is shorter does not start the pauses over
)

// errDeaf: the session was made, and a ring through the pool did not reach it.
var errDeaf = errors.New("notifications do not arrive: a transaction pooler or proxy is in between")

// ears is the session that hears rings. When it cannot be had, the line looks more often instead.
type ears struct {
	line *line

	mu     sync.Mutex
	hears  bool
	news   bool          // hears has changed and changed has not been asked
	told   bool          // that there is no session
	deaf   time.Time     // when it was last seen that none can be had
	pause  time.Duration // before the next try then
	direct direct
	stop   context.CancelFunc
	joined chan struct{}
}

// hearing tells whether rings are heard now.
func (e *ears) hearing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hears
}

// changed tells, once, that hearing has begun or ended.
func (e *ears) changed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	news := e.news
	e.news = false
	return news
}

// open tries to have a session, and goes on trying in a goroutine.
func (e *ears) open(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	session, err := e.connectAgain(ctx)
	joined := make(chan struct{})
	e.mu.Lock()
	e.stop, e.joined, e.hears, e.news = stop, joined, err == nil, false
	e.mu.Unlock()
	if err != nil {
		e.complain(ctx, err)
	}
	go func() {
		defer close(joined)
		e.listen(ctx, session, err)
	}()
}

// close ends the session and waits for the goroutine.
func (e *ears) close(context.Context) {
	e.mu.Lock()
	stop, joined := e.stop, e.joined
	e.hears = false
	e.mu.Unlock()
	stop()
	<-joined
}

// connectAgain is connect, unless no ring came through a short while ago.
func (e *ears) connectAgain(ctx context.Context) (authority.Listener, error) {
	e.mu.Lock()
	early := e.pause > 0 && time.Since(e.deaf) < e.pause
	e.mu.Unlock()
	if early {
		return nil, errDeaf
	}
	session, err := e.connect(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case errors.Is(err, authority.ErrPooled):
		e.deaf, e.pause = time.Now(), mostDeaf
	case isDeaf(err):
		e.deaf, e.pause = time.Now(), min(max(leastDeaf, 2*e.pause), mostDeaf)
	case err == nil:
		e.pause = 0
	}
	return session, err
}

func isDeaf(err error) bool { return errors.Is(err, errDeaf) || errors.Is(err, authority.ErrPooled) }

// connect makes a session and sees that a ring sent through the pool reaches it.
func (e *ears) connect(ctx context.Context) (authority.Listener, error) {
	auth := e.line.client.auth
	limited, cancel := context.WithTimeout(ctx, e.line.client.config.RequestTimeout)
	defer cancel()
	session, err := auth.Listen(limited, e.line.id)
	if err != nil {
		return nil, err
	}
	if err = auth.Ring(limited, e.line.id, authority.Ring{Ticket: testTicket}); err == nil {
		err = e.test(ctx, session)
	}
	if err == nil {
		err = session.Lock(limited, e.line.key)
	}
	if err != nil {
		session.Close(limited)
		return nil, err
	}
	e.ready(limited, session)
	return session, nil
}

func (e *ears) test(ctx context.Context, session authority.Listener) error {
	limited, cancel := context.WithTimeout(ctx, testTime)
	defer cancel()
	for {
		ring, err := session.Next(limited)
		switch {
		case err == nil && ring.Ticket == testTicket:
			return nil
		case err == nil:
			e.line.rung(ring)
		case ctx.Err() == nil && limited.Err() != nil:
			return errDeaf
		default:
			return err
		}
	}
}

// complain says once that there is no session.
func (e *ears) complain(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	e.mu.Lock()
	told := e.told
	e.told = true
	e.mu.Unlock()
	if told {
		return
	}
	e.line.client.events.emit(Event{Kind: EventPollOnly, Owner: e.line.client.config.Owner, Err: err})
	e.line.client.config.Logger.Warn("no listening session; those who wait look from time to time instead", "err", err)
}

// set notes whether rings are heard, and has the line beat and look at once.
func (e *ears) set(hears bool) {
	e.mu.Lock()
	e.hears, e.news = hears, true
	if hears {
		e.told = false
	}
	e.mu.Unlock()
	select {
	case e.line.wake <- struct{}{}:
	default:
	}
}

// listen passes rings on, and makes the session anew when it breaks.
func (e *ears) listen(ctx context.Context, session authority.Listener, err error) {
	wait := leastPause
	for ctx.Err() == nil {
		if session != nil {
			began := time.Now()
			err = e.hear(ctx, session)
			session.Close(ctx)
			session = nil
			if ctx.Err() != nil {
				return
			}
			e.set(false)
			if time.Since(began) > rememberFor {
				wait = leastPause
			}
		}
		if isDeaf(err) {
			wait = e.sinceDeaf()
		}
		if !pause(ctx, wait) {
			return
		}
		wait = min(2*wait, max(mostPause, wait))
		if session, err = e.connectAgain(ctx); err != nil {
			e.complain(ctx, err)
			continue
		}
		e.set(true)
	}
}

// sinceDeaf is how long to wait where no ring comes through.
func (e *ears) sinceDeaf() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(e.pause-time.Since(e.deaf), leastPause)
}

// hear passes rings on until the session breaks.
func (e *ears) hear(ctx context.Context, session authority.Listener) error {
	var served time.Time // when a waiter was, the last time
	for {
		var now bool
		var err error
		if a, ok := e.awaited(served); ok {
			now, err = e.await(ctx, session, a)
		} else {
			now, err = e.next(ctx, session)
		}
		switch {
		case err != nil:
			return err
		case now:
			served = time.Now()
		}
	}
}

// next waits for a ring, and tells whether it was of a waiter that is served. A session that is quiet is asked
// whether it lives.
func (e *ears) next(ctx context.Context, session authority.Listener) (served bool, err error) {
	limited, cancel := context.WithTimeout(ctx, pingEvery*4/5+rand.N(pingEvery*2/5))
	ring, err := session.Next(limited)
	quiet := limited.Err() != nil && ctx.Err() == nil
	cancel()
	switch {
	case err == nil:
		e.line.rung(ring)
		return ring.Fence > 0, nil
	case quiet:
		return false, e.ping(ctx, session)
	}
	return false, err
}

func (e *ears) ping(ctx context.Context, session authority.Listener) error {
	limited, cancel := context.WithTimeout(ctx, e.line.client.config.RequestTimeout)
	defer cancel()
	return session.Ping(limited)
}
