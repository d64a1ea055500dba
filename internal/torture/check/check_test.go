package check_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/torture/check"
	"github.com/pglease/pglease/internal/torture/history"
)

var began = time.Date(2026, 7, 1, 9, 0, 0, 0, time.UTC)

// at is so many milliseconds after the beginning.
func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

// A story is a history that is written by hand.
type story struct{ history.History }

func newStory() *story { return &story{history.History{Began: began}} }

// tenure is one of resource r: its times by the database's clock.
func (s *story) tenure(fence int64, lease string, from, to int, how string) *history.Tenure {
	s.Tenures = append(s.Tenures, history.Tenure{
		Resource: "r", Fence: fence, Lease: lease, Request: "request of " + lease, Acquired: at(from), Expires: at(from + 1000), Ended: at(to), How: how,
	})
	return &s.Tenures[len(s.Tenures)-1]
}

// call is one on resource r, from and to by the machine's clock.
func (s *story) call(call string, fence int64, lease string, outcome history.Outcome, from, to int) *history.Call {
	s.Calls = append(s.Calls, history.Call{
		Name: call + " of " + lease, Call: call, Resource: "r", Fence: fence, Lease: lease, Outcome: outcome, Invoked: at(from), Returned: at(to),
	})
	c := &s.Calls[len(s.Calls)-1]
	if outcome == history.Unknown {
		c.Returned = time.Time{}
	}
	return c
}

// store is a call of a protected resource.
func (s *story) store(call string, fence int64, lease string, outcome history.Outcome, from, to int) *history.Call {
	c := s.call(call, fence, lease, outcome, from, to)
	c.Store = history.Reports
	if call == history.Publish {
		c.Key = lease
	}
	return c
}

// wrote is what the resource accepted.
func (s *story) wrote(fence int64, lease string, ms int) *history.Write {
	s.Writes = append(s.Writes, history.Write{
		Store: history.Reports, Resource: "r", Number: int64(len(s.Writes) + 1), Key: lease, Fence: fence, Lease: lease, At: at(ms),
	})
	return &s.Writes[len(s.Writes)-1]
}

// counted is a guarded count.
func (s *story) counted(fence int64, lease string, n int64, ms int) {
	w := s.wrote(fence, lease, ms)
	w.Store, w.Count = history.Counters, n
	s.call(history.Guard, fence, lease, history.OK, ms-1, ms+1).Store = history.Counters
	s.Calls[len(s.Calls)-1].Key = lease
}

// turn is all that a well-behaved owner does.
func (s *story) turn(fence int64, lease string, from, to int) {
	s.tenure(fence, lease, from, to, "released")
	s.call(history.Acquire, fence, lease, history.OK, from-5, from+5)
	s.store(history.Establish, fence, lease, history.OK, from+6, from+8)
	s.store(history.Publish, fence, lease, history.OK, from+10, from+20)
	s.wrote(fence, lease, from+15)
	s.call(history.Release, fence, lease, history.OK, to-5, to+5)
}

// wants runs all checkers and compares who of them found something.
func (s *story) wants(t *testing.T, checkers ...string) {
	t.Helper()
	var found []string
	for _, v := range check.All(&s.History).Violations {
		t.Log(v)
		if len(v.Slice) == 0 || !strings.Contains(v.String(), v.Text) {
			t.Errorf("%s shows nothing: %s", v.Checker, v)
		}
		if !slices.Contains(found, v.Checker) {
			found = append(found, v.Checker)
		}
	}
	slices.Sort(found)
	slices.Sort(checkers)
	if !slices.Equal(found, checkers) {
		t.Errorf("found by %v, want %v", found, checkers)
	}
}

// good is a history in which all is as it should be, with all that may go wrong.
func good() *story {
	s := newStory()
	s.turn(1, "A", 100, 200)
	s.turn(5, "B", 300, 400)
	s.counted(5, "B", 1, 350)
	s.tenure(6, "C", 500, 1500, "expired") // its holder was frozen
	s.call(history.Acquire, 6, "C", history.OK, 495, 505)
	s.store(history.Establish, 6, "C", history.Unknown, 510, 0)
	s.tenure(9, "D", 1600, 1700, "released")
	s.call(history.Acquire, 9, "D", history.OK, 1400, 1610)
	s.store(history.Establish, 9, "D", history.OK, 1610, 1615)
	refused := s.store(history.Publish, 6, "C", history.Refused, 1620, 1650)
	refused.Why = history.Stale
	s.counted(9, "D", 2, 1660)
	s.call(history.Release, 9, "D", history.Unknown, 1690, 0)
	s.call(history.Release, 6, "C", history.Refused, 1700, 1710)
	return s
}

func TestAGoodHistoryIsNotBlamed(t *testing.T) {
	t.Parallel()
	good().wants(t)
	result := check.All(&good().History)
	if result.Unknown != 2 || result.Resolved != 1 || result.Forgotten != 0 {
		t.Errorf("unknown %d, resolved %d, forgotten %d", result.Unknown, result.Resolved, result.Forgotten)
	}
}

// The authority loses what it granted and counted in a failover: callers know of things that it does
// not. The next fence is above the lost ones.
func TestALossIsNotBlamed(t *testing.T) {
	t.Parallel()
	s := good()
	s.Losses = []history.Loss{{From: at(1790), To: at(1990)}}
	s.call(history.Acquire, 20, "lost", history.OK, 1795, 1805)
	s.store(history.Publish, 20, "lost", history.OK, 1810, 1820)
	s.wrote(20, "lost", 1815)
	c := s.call(history.Guard, 20, "lost", history.OK, 1830, 1840)
	c.Store, c.Key = history.Counters, "a count that was lost"
	s.call(history.Release, 20, "lost", history.OK, 1850, 1860)
	s.turn(40, "E", 2100, 2200)
	s.wants(t)
	if result := check.All(&s.History); result.Forgotten != 1 {
		t.Errorf("forgotten: %d", result.Forgotten)
	}
	s.Losses = nil
	s.wants(t, "truth")
}

// A release does not wait for the disk: a crash may take it, and the lease then ends with its TTL.
func TestAReleaseLostInACrashIsNotBlamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		crash int
		want  []string
	}{
		"a crash":                 {crash: 700},
		"a crash long afterwards": {crash: 1700, want: []string{"truth"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			s.tenure(1, "A", 100, 2000, "expired")
			s.call(history.Acquire, 1, "A", history.OK, 95, 105)
			s.call(history.Release, 1, "A", history.OK, 590, 610)
			s.Faults = append(s.Faults, history.Fault{Kind: history.Crashed, From: at(test.crash), To: at(test.crash + 10)})
			s.wants(t, test.want...)
		})
	}
}

// A lease that was handed over is ended for a process that seems dead, when that one does not trust it any more.
func TestALeaseOfOneThatSeemsDeadIsNotBlamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ended, stopped int
		want           []string
	}{
		"stopped":               {ended: 2000, stopped: 600},
		"stopped, and too soon": {ended: 700, stopped: 600, want: []string{"truth"}},
		"stopped afterwards":    {ended: 2000, stopped: 2100, want: []string{"truth"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			tenure := s.tenure(1, "A", 500, test.ended, "released")
			tenure.Ticket, tenure.Expires = 7, at(3500)
			s.call(history.Acquire, 1, "A", history.OK, 95, 505)
			s.Faults = append(s.Faults, history.Fault{Kind: "process_stopped", Target: s.Calls[0].Process, From: at(test.stopped), To: at(test.stopped + 2000)})
			s.wants(t, test.want...)
		})
	}
}

// A place in line is committed without waiting for the disk: who lost it in a crash or a failover comes
// after one that asked later. One that was on disk by then keeps it.
func TestAPlaceLostInACrashIsNotBlamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		crash, loss int
		want        []string
	}{
		"a crash":                 {crash: 450},
		"a failover":              {loss: 450},
		"a crash afterwards":      {crash: 750, want: []string{"queue"}},
		"a crash long afterwards": {crash: 1300, want: []string{"queue"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := line()
			s.Tenures[1].Ticket, s.Tenures[2].Ticket = 0, 8
			s.Calls[2].Invoked, s.Calls[2].Joined = at(400), at(0) // A came when B was in line
			if test.crash > 0 {
				s.Faults = append(s.Faults, history.Fault{Kind: history.Crashed, From: at(test.crash), To: at(test.crash + 10)})
			}
			if test.loss > 0 {
				s.Losses = append(s.Losses, history.Loss{From: at(test.loss), To: at(test.loss + 10)})
			}
			s.wants(t, test.want...)
		})
	}
}

// A failover loses what A and then B were granted, and not A's place in line. It is served again, though nobody waits
// there any more, and its lease ends by itself: the same lease, as A chose its id, and another grant.
func TestAPlaceServedAgainAfterAFailoverIsNotBlamed(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.call(history.Acquire, 1, "A", history.OK, 95, 105)
	s.call(history.Release, 1, "A", history.OK, 115, 125)
	s.call(history.Acquire, 2, "B", history.OK, 135, 145)
	s.Losses = append(s.Losses, history.Loss{From: at(90), To: at(200)})
	s.tenure(9, "A", 300, 1300, "expired").Ticket = 7
	s.turn(10, "C", 1400, 1450)
	s.wants(t)

	s.Losses = nil
	s.wants(t, "truth")
}

// The database's clock is set forward by a day, which ends a lease early, and back again.
func TestAStepOfTheClockIsNotBlamed(t *testing.T) {
	t.Parallel()
	const day = 24 * 60 * 60 * 1000
	s := newStory()
	s.tenure(1, "A", 100, 1100, "expired")
	s.call(history.Acquire, 1, "A", history.OK, 95, 105)
	s.Steps = append(s.Steps, history.Step{At: at(200), Days: 1})
	s.tenure(2, "B", day+300, day+350, "released")
	s.call(history.Acquire, 2, "B", history.OK, 295, 305)
	s.call(history.Release, 2, "B", history.OK, 345, 355)
	s.Steps = append(s.Steps, history.Step{At: at(400)})
	s.turn(3, "C", 500, 600)
	s.wants(t)

	s.Tenures[2].Acquired = at(340) // before B had ended, by the true time
	s.wants(t, "overlap")
}

// B's lease had expired by the clock that was set back by a day then. The grant after it was asked for before
// that, and made when the server got to it.
func TestAGrantUnderWayAtAStepIsNotBlamed(t *testing.T) {
	t.Parallel()
	const day = 24 * 60 * 60 * 1000
	s := newStory()
	s.Steps = append(s.Steps, history.Step{At: at(100), Days: 1})
	s.tenure(2, "B", day+300, day+1300, "expired")
	s.call(history.Acquire, 2, "B", history.OK, 295, 305)
	s.Steps = append(s.Steps, history.Step{At: at(1400)})
	s.tenure(3, "C", 3500, 3600, "released")
	s.call(history.Acquire, 3, "C", history.OK, 1350, 3510)
	s.call(history.Release, 3, "C", history.OK, 3595, 3605)
	s.wants(t)
	s.Calls[1].Invoked = at(1450) // when B's had a day to go
	s.wants(t, "overlap")
}

// W's place was late by a clock that was set forward by a day. It took another, and was served from there: behind B, which
// came after W had known that it was in line.
func TestAPlaceThatAStepMadeLateIsNotBlamed(t *testing.T) {
	t.Parallel()
	const day = 24 * 60 * 60 * 1000
	s := newStory()
	s.tenure(1, "A", 100, day+250, "released")
	s.call(history.Acquire, 1, "A", history.OK, 95, 105)
	s.call(history.Release, 1, "A", history.OK, 240, 255)
	s.Steps = append(s.Steps, history.Step{At: at(200), Days: 1}, history.Step{At: at(201), Days: 1})
	s.tenure(2, "B", day+300, day+350, "released")
	s.call(history.Acquire, 2, "B", history.OK, 295, 305)
	s.call(history.Release, 2, "B", history.OK, 345, 355)
	s.tenure(3, "W", day+350, day+400, "released").Ticket = 7
	s.call(history.Acquire, 3, "W", history.OK, 110, 360).Joined = at(120)
	s.call(history.Release, 3, "W", history.OK, 395, 405)
	s.wants(t)

	s.Steps = []history.Step{{At: at(108), Days: 1}} // before it came
	s.wants(t, "queue")
}
