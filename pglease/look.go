package pglease

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pglease/pglease/pglease/internal/authority"
)

// How the line looks after its waiters by itself: where a ring was lost, none can be had, or the
// holder died, which nobody rings for.

// lookIn sets when to ask after a waiter, if it still is one, and wakes the goroutine where that is earlier than it
// would wake by itself. l.mu is held.
func (l *line) lookIn(p *place, after time.Duration) {
	if _, waits := l.places[p]; !waits {
		return
	}
	if look, unlisted := l.unlisted(p); unlisted {
		after = min(after, look)
	}
	l.looks.set(p, time.Now().Add(after))
	if p.look.Before(l.asleep) {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// lookAgain makes every waiter due: rings may have been missed. One whose join is under way will be, too.
func (l *line) lookAgain(missed bool) {
	if !missed {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.missed++
	for _, p := range l.looks {
		p.look = now // all the same, so they are in order
	}
}

// due returns the waiters to look after, or until when the goroutine may sleep. done tells that nobody has waited for
// a while, and that the goroutine is counted out.
func (l *line) due(now time.Time) (due []*place, next time.Time, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.places) == 0:
		l.asleep = l.idle.Add(linger)
		done = !now.Before(l.asleep)
		l.running = !done
	case len(l.looks) == 0:
		l.asleep = now.Add(time.Hour)
	case !l.looks[0].look.After(now):
		l.asleep = time.Time{} // it asks again before it sleeps
		return l.looks.take(now.Add(togetherWithin)), time.Time{}, false
	default:
		l.asleep = l.looks[0].look
	}
	return nil, l.asleep, done
}

// togetherWithin is how much earlier than planned a waiter is looked after, because another is, so that one
// statement serves them all.
const togetherWithin = time.Second

// look asks how waiters stand, in one statement, and wakes those with news.
func (l *line) look(ctx context.Context, due []*place) {
	asked := make([]authority.Place, len(due))
	l.mu.Lock()
	missed := l.missed
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
		next := l.next(s, err != nil)
		if missed != l.missed { // all were to be looked after since these were asked for
			next = 0
		}
		l.lookIn(p, next)
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

// looks are the waiters by when to look after them: a heap, the next one first, so that what a hand-over costs does
// not grow with the number of those who wait.
type looks []*place

// set puts a waiter in, or moves it.
func (l *looks) set(p *place, at time.Time) {
	p.look = at
	if p.index == 0 {
		heap.Push(l, p)
	} else {
		heap.Fix(l, p.index-1)
	}
}

func (l *looks) remove(p *place) {
	if p.index != 0 {
		heap.Remove(l, p.index-1)
	}
}

// take removes the waiters that are due before the given time, and returns them.
func (l *looks) take(until time.Time) (due []*place) {
	for len(*l) > 0 && (*l)[0].look.Before(until) {
		due = append(due, heap.Pop(l).(*place))
	}
	return due
}

func (l looks) Len() int           { return len(l) }
func (l looks) Less(i, j int) bool { return l[i].look.Before(l[j].look) }

func (l looks) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].index, l[j].index = i+1, j+1
}

func (l *looks) Push(x any) {
	p := x.(*place)
	*l = append(*l, p)
	p.index = len(*l)
}

func (l *looks) Pop() any {
	last := len(*l) - 1
	p := (*l)[last]
	(*l)[last], *l = nil, (*l)[:last]
	p.index = 0
	return p
}
