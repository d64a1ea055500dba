package pglease

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pglease/pglease/pglease/internal/authority"
)

// How the line looks after its waiters by itself: where a ring was lost, none can be had, or the
// holder died, which nobody rings for.

// lookAgain makes every waiter due: rings may have been missed.
func (l *line) lookAgain(missed bool) {
	if !missed {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.places {
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
	for p := range l.places {
		switch {
		case p.Ticket == 0: // not in line yet
		case !p.look.After(now):
			due = append(due, p)
		default:
			next = earliest(next, p.look)
		}
	}
	if len(due) > 0 {
		due = l.soon(due, now.Add(togetherWithin))
	}
	return due, next, false
}

// togetherWithin is how much earlier than planned a waiter is looked after, because another is.
const togetherWithin = time.Second

// soon adds the waiters whose look is not far off, so that one statement serves them all. l.mu is held.
func (l *line) soon(due []*place, until time.Time) []*place {
	asked := make(map[*place]bool, len(due))
	for _, p := range due {
		asked[p] = true
	}
	for p := range l.places {
		if p.Ticket != 0 && !asked[p] && p.look.Before(until) {
			due = append(due, p)
		}
	}
	return due
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
		if s.InLine {
			p.seen = sent
		}
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
		expiry += time.Duration(rand.Int64N(int64(10 * time.Millisecond)))
	} else {
		expiry += 100*time.Millisecond + time.Duration(rand.Int64N(int64(80*time.Millisecond)))
	}
	return min(most, expiry)
}

// jitter is d, give or take a fifth.
func jitter(d time.Duration) time.Duration {
	return d*4/5 + rand.N(d*2/5+1)
}

// promote serves the line of a resource that is free or expired, and tells whether somebody was, or
// that it is not known.
func (c *Client) promote(ctx context.Context, resource string) (served bool) {
	ctx, cancel := context.WithTimeout(ctx, c.config.RequestTimeout)
	defer cancel()
	sent := time.Now()
	next, err := c.auth.Promote(ctx, resource)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			c.config.Logger.Warn("the line could not be served", "resource", resource, "err", err)
		}
		return true
	}
	c.line.serve(ctx, sent, next)
	return next.Ticket != 0
}
