//go:build unix

package sequences_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pglease/pglease/pglease"
)

// TestSequence11_ThousandsOfWaiters: a few wait for the report, then two thousand do, in eight processes.
// What is sent for each of them does not grow with their number.
//
//	   owner                  2,000 in line           authority                      report
//	1  holds the resource     join
//	2  releases                                       grants to the first of them
//	3                         the first is rung for,  f(1)
//	                          nobody else wakes
//	4                         it publishes                                           version 2 under f(1)
//	5                         it releases             grants to the second: f(2)
//	   and so on to the last
func TestSequence11_ThousandsOfWaiters(t *testing.T) {
	t.Parallel()
	for name, direct := range map[string]bool{"notified": false, "woken directly": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			thousandsOfWaiters(t, direct)
		})
	}
}

func thousandsOfWaiters(t *testing.T, direct bool) {
	t.Helper()
	few, many := 80, 2000
	if testing.Short() || direct {
		many = 320
	}
	s := newStage(t)
	s.firstVersion(t)
	holder := newClient(t, s.leases, pglease.Config{TTL: time.Hour})
	workers := make([]*process, 8)
	for i := range workers {
		workers[i] = s.start(t, role{Name: fmt.Sprint("W", i+1), TTL: 10 * time.Minute, DirectWake: direct})
	}
	seldom := s.crowd(t, holder, workers, few)
	often := s.crowd(t, holder, workers, many)
	t.Logf("a hand-over with %d waiters: %v; with %d: %v", few, seldom, many, often)
	if often.sent > max(10, 1.5*seldom.sent) {
		t.Errorf("%.1f statements for each hand-over with %d waiters, %.1f with %d", seldom.sent, few, often.sent, many)
	}
	// If all woke each time, half of them would look at each hand-over on average. Some look by the clock,
	// and so more often on a slow machine.
	if often.rings > 1 || often.looks > 5 {
		t.Errorf("with %d waiters %.2f rings and %.2f looks for each hand-over", many, often.rings, often.looks)
	}

	history := s.soundHistory(t)
	if len(history) != 1+few+many {
		t.Errorf("%d versions for %d owners", len(history), 1+few+many)
	}
	for i, v := range history[1:] {
		if v.Fence <= history[i].Fence {
			t.Errorf("version %d has fence %d, after fence %d", v.Number, v.Fence, history[i].Fence)
		}
	}
	last, err := s.reports.Read(t.Context(), s.report)
	if err != nil || string(last.Body) != fmt.Sprint(1+few+many) {
		t.Errorf("the last version says %q, %v", last.Body, err)
	}
	s.wantRefused(t)
}

// perHandOver is what a crowd sent for each of its owners, on average.
type perHandOver struct{ sent, rings, looks float64 }

func (p perHandOver) String() string {
	return fmt.Sprintf("%.1f statements, %.2f rings, %.2f looks", p.sent, p.rings, p.looks)
}

// crowd has many wait behind the holder, lets them in, and counts.
func (s *stage) crowd(t *testing.T, holder *pglease.Client, workers []*process, waiters int) perHandOver {
	t.Helper()
	held := s.take(t, holder)
	for _, w := range workers {
		w.tell(t, command{Do: "crowd", Waiters: waiters / len(workers)})
	}
	s.inLine(t, waiters)
	release(t, held)
	var all answer
	for _, w := range workers {
		said := w.hear(t)
		if said.Outcome != outcomeOK {
			t.Fatal(said.Outcome)
		}
		all.Served += said.Served
		all.Sent += said.Sent
		all.Rings += said.Rings
		all.Looks += said.Looks
	}
	if all.Served != waiters {
		t.Errorf("%d of %d were served", all.Served, waiters)
	}
	per := func(n int64) float64 { return float64(n) / float64(waiters) }
	return perHandOver{per(all.Sent), per(all.Rings), per(all.Looks)}
}
