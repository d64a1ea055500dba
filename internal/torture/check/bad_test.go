package check_test

import (
	"testing"

	"github.com/pglease/pglease/internal/torture/check"
	"github.com/pglease/pglease/internal/torture/history"
	"github.com/pglease/pglease/internal/torture/mutant"
)

// badHistories are a good one with one thing wrong each, and the checkers that must find it.
var badHistories = []struct {
	name  string
	spoil func(*story)
	want  []string
}{
	{"two leases of one fence", func(s *story) {
		s.Changes = append(s.Changes, history.Change{Number: 1, Resource: "r", Fence: 5, Lease: "another", Expires: at(1300), At: at(300)})
	}, []string{"fences"}},
	{"a fence that falls in real time", func(s *story) {
		s.Losses = []history.Loss{{From: at(1900), To: at(2000)}}
		s.call(history.Acquire, 8, "E", history.OK, 1950, 1960)
	}, []string{"fences", "locks"}},
	{"a greater fence granted first", func(s *story) {
		s.tenure(4, "E", 1800, 1900, "expired")
	}, []string{"fences", "locks", "overlap"}},
	{"two leases at once", func(s *story) {
		s.tenure(12, "E", 1650, 1680, "expired")
		s.call(history.Acquire, 12, "E", history.OK, 1645, 1655)
	}, []string{"locks", "overlap"}},
	{"an expired lease renewed", func(s *story) {
		s.Changes = append(s.Changes,
			history.Change{Number: 1, Resource: "r", Fence: 6, Lease: "C", Expires: at(1500), At: at(500)},
			history.Change{Number: 2, Resource: "r", Fence: 6, Lease: "C", Expires: at(2600), At: at(1600)})
	}, []string{"unbroken"}},
	{"an ended lease made valid", func(s *story) {
		s.Changes = append(s.Changes,
			history.Change{Number: 1, Resource: "r", Fence: 6, Lease: "C", Expires: at(1500), At: at(500), Ended: true},
			history.Change{Number: 2, Resource: "r", Fence: 6, Lease: "C", Expires: at(1500), At: at(500)})
	}, []string{"unbroken"}},
	{"a lease made shorter", func(s *story) {
		s.Changes = append(s.Changes,
			history.Change{Number: 1, Resource: "r", Fence: 6, Lease: "C", Expires: at(1500), At: at(500)},
			history.Change{Number: 2, Resource: "r", Fence: 6, Lease: "C", Expires: at(1400), At: at(400)})
	}, []string{"unbroken"}},
	{"a lower fence accepted late", func(s *story) {
		s.store(history.Publish, 1, "A", history.OK, 1670, 1680).Key = "late"
		s.wrote(1, "A", 1675).Key = "late"
	}, []string{"accepted", "registers", "successor"}},
	{"a write of a lease nobody was granted", func(s *story) {
		s.store(history.Publish, 30, "X", history.OK, 1670, 1680)
		s.wrote(30, "X", 1675)
	}, []string{"granted"}},
	{"a write that nobody made", func(s *story) { s.wrote(9, "D", 1675).Key = "nobody's" }, []string{"truth"}},
	{"a publication accepted twice", func(s *story) { s.wrote(5, "B", 360) }, []string{"truth"}},
	{"an acknowledged publication that is gone", func(s *story) { s.store(history.Publish, 9, "D", history.OK, 1670, 1680) }, []string{"truth"}},
	{"a refused publication that is there", func(s *story) { s.wrote(6, "C", 1612).Key = "C" }, []string{"truth"}},
	{"a current owner turned away", func(s *story) {
		s.store(history.Establish, 9, "D", history.Refused, 1670, 1680).Why = history.Stale
	}, []string{"registers"}},
	{"an update lost", func(s *story) {
		s.counted(9, "D", 2, 1670)
		s.Calls[len(s.Calls)-1].Key, s.Writes[len(s.Writes)-1].Key = "twice", "twice"
	}, []string{"guard"}},
	{"a guarded write after the lease", func(s *story) {
		s.counted(9, "D", 3, 1750)
		s.Calls[len(s.Calls)-1].Key, s.Writes[len(s.Writes)-1].Key = "late", "late"
	}, []string{"guard"}},
	{"a guarded write after the next grant", func(s *story) {
		s.tenure(12, "E", 1800, 1850, "broken")
		s.tenure(13, "F", 1900, 1950, "broken")
		s.counted(12, "E", 3, 1920)
	}, []string{"guard"}},
	{"a release that released nothing", func(s *story) { s.call(history.Release, 6, "C", history.OK, 600, 610) }, []string{"truth"}},
	{"a release by somebody else", func(s *story) {
		s.tenure(12, "E", 1800, 1900, "released")
		s.call(history.Acquire, 12, "E", history.OK, 1795, 1805)
	}, []string{"truth"}},
	{"a grant that is on no record", func(s *story) { s.call(history.Acquire, 12, "E", history.OK, 1795, 1805) }, []string{"truth"}},
	{"a request granted twice", func(s *story) { s.tenure(12, "E", 1800, 1900, "broken").Request = "request of D" }, []string{"truth"}},
	{"a refused acquire that was granted", func(s *story) {
		s.tenure(12, "E", 1800, 1900, "broken")
		s.call(history.TryAcquire, 0, "", history.Refused, 1780, 1790).Request = "request of E"
	}, []string{"truth"}},
	{"a guarded write while another has it", func(s *story) {
		s.tenure(12, "E", 1800, 1900, "broken")
		s.call(history.Acquire, 12, "E", history.OK, 1795, 1805)
		s.call(history.Guard, 9, "D", history.OK, 1850, 1860)
	}, []string{"locks"}},
}

// TestBadHistories are found by the checkers that are for it, and by no other.
func TestBadHistories(t *testing.T) {
	t.Parallel()
	for _, test := range badHistories {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := good()
			test.spoil(s)
			s.wants(t, test.want...)
		})
	}
}

// line is a story of a queue: X holds, A and B wait and are served in this order.
func line() *story {
	s := newStory()
	s.tenure(1, "X", 100, 500, "released")
	s.call(history.Acquire, 1, "X", history.OK, 95, 105)
	s.call(history.Release, 1, "X", history.OK, 490, 510)
	s.tenure(2, "A", 500, 600, "released").Ticket = 7
	s.call(history.Acquire, 2, "A", history.OK, 200, 520).Joined = at(220)
	s.call(history.Release, 2, "A", history.OK, 590, 610)
	s.tenure(3, "B", 600, 700, "broken").Ticket = 8
	s.call(history.Acquire, 3, "B", history.OK, 300, 620).Joined = at(320)
	return s
}

func TestALineInOrderIsNotBlamed(t *testing.T) {
	t.Parallel()
	line().wants(t)
}

// TestARepeatedRequestKeepsItsPlace: A did not learn that it was in line, and asked again when B was.
func TestARepeatedRequestKeepsItsPlace(t *testing.T) {
	t.Parallel()
	s := line()
	again := &s.Calls[2]
	again.Request, again.Invoked, again.Joined = "request of A", at(400), at(420)
	s.wants(t, "queue") // had it not asked before
	first := s.call(history.Acquire, 0, "", history.Unknown, 200, 0)
	first.Request, first.Returned = "request of A", at(350)
	s.wants(t)
}

func TestBadLines(t *testing.T) {
	t.Parallel()
	t.Run("a later ticket first", func(t *testing.T) {
		t.Parallel()
		s := line()
		s.Tenures[1].Ticket = 9
		s.wants(t, "queue")
	})
	t.Run("one without a place first", func(t *testing.T) {
		t.Parallel()
		s := line()
		s.Tenures[1].Ticket, s.Tenures[2].Ticket = 0, 8
		s.Calls[2].Invoked, s.Calls[2].Joined = at(400), at(0) // A came when B was in line
		s.wants(t, "queue")
	})
	t.Run("free while somebody waits", func(t *testing.T) {
		t.Parallel()
		s := line()
		s.Tenures[1].Acquired, s.Tenures[1].Expires = at(540), at(1540)
		s.Calls[2].Returned = at(545)
		s.wants(t, "queue")
	})
}

// TestEveryCheckerIsShownToFind something: on a history written by hand, and in a run with a bug.
func TestEveryCheckerIsShownToFind(t *testing.T) {
	t.Parallel()
	byHand, planted := map[string]bool{"queue": true}, map[string]bool{} // TestBadLines
	for _, test := range badHistories {
		for _, name := range test.want {
			byHand[name] = true
		}
	}
	for _, m := range mutant.All {
		for _, name := range m.Finds {
			planted[name] = true
		}
	}
	for _, c := range check.Checkers {
		if !byHand[c.Name] || !planted[c.Name] {
			t.Errorf("%s: shown by hand: %t, by a planted bug: %t", c.Name, byHand[c.Name], planted[c.Name])
		}
	}
}
