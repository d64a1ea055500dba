package pglease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pglease/pglease/pglease/internal/authority"
)

// lineOf is one whose goroutine does not run, with so many waiters. Their looks are between four and six seconds
// away, as those of waiters far from being served.
func lineOf(waiters int) (*line, []*place) {
	l := &line{places: map[*place]struct{}{}, calls: map[authority.ID][]*place{}, tickets: map[int64]authority.ID{}, wake: make(chan struct{}, 1)}
	list := make([]*place, waiters)
	for i := range list {
		list[i] = &place{Place: authority.Place{Request: authority.ID(NewRequestID())}, woken: make(chan grant, 1)}
		l.places[list[i]] = struct{}{}
		l.calls[list[i].Request] = []*place{list[i]}
		l.placed(list[i], int64(i+1), time.Now(), jitter(beatEvery))
	}
	return l, list
}

// Waiters are looked after in the order of their looks, whoever of them moved or left.
func TestLooksAreTakenInOrder(t *testing.T) {
	t.Parallel()
	l, list := lineOf(500)
	for range 1000 {
		if p := list[rand.IntN(len(list))]; rand.IntN(4) == 0 {
			l.exit(p)
		} else {
			l.lookIn(p, rand.N(time.Hour))
		}
	}
	var want []time.Time
	for p := range l.places {
		want = append(want, p.look)
	}
	slices.SortFunc(want, time.Time.Compare)
	var got []time.Time
	for len(l.looks) > 0 {
		for _, p := range l.looks.take(l.looks[0].look.Add(1)) {
			got = append(got, p.look)
		}
	}
	if !slices.EqualFunc(got, want, time.Time.Equal) {
		t.Errorf("%d looks were taken of %d, or not in order", len(got), len(want))
	}
}

// The goroutine is woken for a look that is earlier than the one it sleeps for, and for no other: each
// wake-up of it would fall into a hand-over.
func TestOnlyAnEarlierLookWakes(t *testing.T) {
	t.Parallel()
	l, list := lineOf(10)
	due, until, _ := l.due(time.Now())
	if len(due) > 0 || time.Until(until) <= 0 {
		t.Fatalf("%d are due, and the next in %v", len(due), time.Until(until))
	}
	for _, step := range []struct {
		after time.Duration
		wakes bool
	}{{2 * beatEvery, false}, {time.Second, true}, {2 * time.Second, true}, {beatEvery, false}} {
		l.mu.Lock()
		l.lookIn(list[3], step.after)
		l.mu.Unlock()
		select {
		case <-l.wake:
			if !step.wakes {
				t.Errorf("a look in %v has woken it", step.after)
			}
		default:
			if step.wakes {
				t.Errorf("a look in %v has not woken it", step.after)
			}
		}
	}
	l.exit(list[3])
	l.mu.Lock()
	l.lookIn(list[3], 0)
	l.mu.Unlock()
	if len(l.wake) > 0 || len(l.looks) != 9 {
		t.Errorf("who has left is looked after: %d are", len(l.looks))
	}
}

// BenchmarkTurn is what a hand-over costs the line: one leaves, joins at the end, and the goroutine asks who is due.
func BenchmarkTurn(b *testing.B) {
	for _, waiters := range []int{10, 100, 1_000, 10_000} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			l, list := lineOf(waiters)
			ticket := int64(waiters)
			for i := 0; b.Loop(); i++ {
				p := list[i%waiters]
				l.exit(p)
				ticket++
				l.places[p], l.calls[p.Request] = struct{}{}, []*place{p}
				l.placed(p, ticket, time.Now(), time.Minute)
				if due, _, _ := l.due(time.Now()); len(due) > 0 {
					b.Fatal("somebody is due")
				}
			}
		})
	}
}
