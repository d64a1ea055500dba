package pglease

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
	"github.com/pglease/pglease/pglease/internal/mint"
)

// directLine is a line whose goroutine does not run.
func directLine(ttl time.Duration) *line {
	l := newLine(&Client{config: Config{DirectWake: true, TTL: ttl, MaxWaiting: 10}})
	l.running, l.ready = true, make(chan struct{})
	close(l.ready)
	return l
}

func (l *line) waiter(t *testing.T, resource string, id RequestID, ttl time.Duration) *place {
	t.Helper()
	p, err := l.enter(t.Context(), &request{Request: authority.Request{Resource: resource, ID: authority.ID(id), TTL: ttl}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestWhatIsAwarded: a grant counts from the moment of sending, by the database's clock, and is no longer than the TTL from
// when the waiter was last seen without it. Who shares the request looks, and what came twice is told once.
func TestWhatIsAwarded(t *testing.T) {
	t.Parallel()
	const ttl = time.Minute
	sent := time.Now()
	for name, c := range map[string]struct {
		seen            time.Time
		remaining, want time.Duration
	}{
		"granted before it was sent":               {seen: sent.Add(-time.Hour), remaining: ttl - time.Second, want: ttl - time.Second},
		"granted later":                            {seen: sent.Add(2 * time.Second), remaining: ttl + time.Second, want: ttl + time.Second},
		"the clock was set meanwhile":              {seen: sent.Add(-time.Hour), remaining: time.Hour, want: ttl},
		"the clock was set, and it joined later":   {seen: sent.Add(time.Second), remaining: time.Hour, want: ttl + time.Second},
		"granted before the answer to its join":    {remaining: ttl + time.Second, want: ttl},
		"most of it is gone, because it came late": {seen: sent, remaining: time.Second, want: time.Second},
	} {
		for _, unconfirmed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, unconfirmed %v", name, unconfirmed), func(t *testing.T) {
				t.Parallel()
				l := directLine(ttl)
				id := NewRequestID()
				p, same, other := l.waiter(t, "r", id, ttl), l.waiter(t, "r", id, ttl), l.waiter(t, "r", NewRequestID(), ttl)
				p.seen = c.seen
				token := mint.Token("r", 7, p.lease).(fence.Token)
				answer := authority.Awaiting{Grants: []authority.Awarded{{Token: token, Remaining: c.remaining}}, Unconfirmed: unconfirmed}
				l.awarded(sent, answer)
				got := <-p.woken
				if got != (grant{token: token, sent: sent, remaining: c.want, unconfirmed: unconfirmed}) {
					t.Errorf("%+v", got)
				}
				if ring := <-same.woken; !ring.ring {
					t.Errorf("one of the same request: %+v", ring)
				}
				l.awarded(sent, answer)
				if len(p.woken)+len(other.woken) > 0 {
					t.Errorf("told again: %d, another: %d", len(p.woken), len(other.woken))
				}
			})
		}
	}
}

// TestWhatIsAwaited: the places in line and some to come, for a share of the shortest TTL.
func TestWhatIsAwaited(t *testing.T) {
	t.Parallel()
	l := directLine(time.Minute)
	first, short := l.waiter(t, "a", NewRequestID(), time.Minute), l.waiter(t, "b", NewRequestID(), 600*time.Millisecond)
	a, ok := l.awaited()
	if !ok || a.Key != l.key || a.Most != 100*time.Millisecond || !slices.Equal(a.Resources, []string{"b", "a"}) ||
		!slices.Contains(a.Leases, first.lease) || !slices.Contains(a.Leases, short.lease) {
		t.Errorf("%+v, %v", a, ok)
	}
	short.tell(grant{})
	if a, ok = l.awaited(); !ok || a.Most != longestWait || slices.Contains(a.Leases, short.lease) {
		t.Errorf("when one is served: %+v, %v", a, ok)
	}
	if next := l.waiter(t, "a", NewRequestID(), time.Minute); !slices.Contains(a.Leases, next.lease) {
		t.Error("the next one's lease was not awaited before it came")
	}
}

// looksIn is when a waiter is looked after.
func (l *line) looksIn(p *place) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(p.look)
}

// TestWhatIsNotAwaitedIsLookedFor: soon, while the session waits for others, and then after as long as it has waited.
func TestWhatIsNotAwaitedIsLookedFor(t *testing.T) {
	t.Parallel()
	const seldom = time.Hour
	l := directLine(time.Minute)
	before := l.waiter(t, "a", NewRequestID(), time.Minute)
	a, ok := l.awaited()
	if !ok {
		t.Fatal(a)
	}
	places := map[string]*place{
		"it is listed":      before,
		"it came, and is":   l.waiter(t, "a", NewRequestID(), time.Minute),
		"of a new resource": l.waiter(t, "b", NewRequestID(), time.Minute),
		"it is only rung":   {Place: authority.Place{Resource: "a"}, lease: a.Leases[0], barging: true},
		"its lease is new":  {Place: authority.Place{Resource: "a"}, lease: authority.ID(NewRequestID())},
	}
	ticket := int64(0)
	for name, soon := range map[string]bool{
		"it is listed": false, "it came, and is": false, "of a new resource": true, "it is only rung": true, "its lease is new": true,
	} {
		p := places[name]
		l.places[p] = struct{}{}
		ticket++
		l.placed(p, ticket, time.Now(), seldom)
		if in := l.looksIn(p); (in <= beginsWithin) != soon {
			t.Errorf("%s: looked after in %v", name, in)
		}
	}
	l.wait.sent = l.wait.sent.Add(-time.Minute)
	l.mu.Lock()
	l.lookIn(places["of a new resource"], seldom)
	l.mu.Unlock()
	if in := l.looksIn(places["of a new resource"]); in < time.Minute-time.Second || in > 2*time.Minute {
		t.Errorf("after a minute of the wait the next look is in %v", in)
	}
	l.awake()
	l.placed(places["its lease is new"], 9, time.Now(), seldom)
	if in := l.looksIn(places["its lease is new"]); in < seldom-time.Minute {
		t.Errorf("the wait is over, and the next look is in %v", in)
	}
}

// TestAJoinThatIsUnderWayIsLookedAfterToo: somebody was served that the session did not wait for. It may be one whose
// join was not answered yet.
func TestAJoinThatIsUnderWayIsLookedAfterToo(t *testing.T) {
	t.Parallel()
	l := directLine(time.Minute)
	p := l.waiter(t, "r", NewRequestID(), time.Minute)
	l.lookNow()
	l.placed(p, 1, time.Now(), time.Hour)
	if in := l.looksIn(p); in > 0 {
		t.Errorf("it is looked after in %v", in)
	}
	l.placed(p, 2, time.Now(), time.Hour)
	if in := l.looksIn(p); in < time.Hour/2 {
		t.Errorf("it joined again, and is looked after in %v", in)
	}
}

// watched is an authority that does something while it is asked how waiters stand. All are in line.
type watched struct {
	authority.Authority
	meanwhile func()
}

func (w watched) Watch(_ context.Context, places []authority.Place) ([]authority.Standing, error) {
	w.meanwhile()
	list := make([]authority.Standing, len(places))
	for i, p := range places {
		list[i] = authority.Standing{Request: p.Request, InLine: true, Remaining: time.Hour}
	}
	return list, nil
}

// TestALookThatIsUnderWayIsMadeAgain: somebody was served that the session did not wait for, after those were asked for
// who are looked after.
func TestALookThatIsUnderWayIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"somebody was served": true, "nobody was": false} {
		l := directLine(time.Hour)
		l.client.config.RequestTimeout = time.Minute
		l.client.auth = watched{meanwhile: func() {
			if again {
				l.lookNow()
			}
		}}
		l.ears.hears = true
		p := l.waiter(t, "r", NewRequestID(), time.Hour)
		l.look(t.Context(), []*place{p})
		if in := l.looksIn(p); (in <= 0) != again {
			t.Errorf("%s: looked after in %v", name, in)
		}
	}
}
