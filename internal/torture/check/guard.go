package check

import (
	"time"

	"github.com/pglease/pglease/internal/torture/history"
)

// guard: under the guard no update is lost, so a counter that is read and then written counts without
// a gap or a repetition; and each count was made while its lease was valid, by the record of both. An
// operator who breaks a lease does not wait for the guarded transaction that is under way, and the next
// owner does: that one counts there.
func guard(h *history.History) (found []Violation) {
	tenures := untilTheNext(h)
	for at, counts := range writesOf(h) {
		if at.store != history.Counters {
			continue
		}
		for i, w := range counts {
			if w.Count != int64(i+1) {
				slice := []any{w}
				if i > 0 {
					slice = []any{counts[i-1], w}
				}
				found = append(found, violation(at.resource, "an update was lost", slice...))
				break // the later ones follow from it
			}
		}
		for _, w := range counts {
			if t, there := tenures[grant{w.Lease, w.Fence}]; there && outside(h, t.tenure.Acquired, t.until, w.At) {
				found = append(found, violation(at.resource, "a guarded write outside the time of its lease", t.tenure, w))
			}
		}
	}
	return found
}

// A stay is a tenure, and when it kept others out no more.
type stay struct {
	tenure history.Tenure
	until  time.Time
}

// untilTheNext finds a stay by its grant.
func untilTheNext(h *history.History) map[grant]stay {
	of := make(map[grant]stay, len(h.Tenures))
	for _, tenures := range tenuresOf(h) {
		for i, t := range tenures {
			s := stay{t, t.End()}
			switch last := i == len(tenures)-1; {
			case t.How == "broken" && !last:
				s.until = tenures[i+1].Acquired
			case t.How == "broken":
				s.until = t.Expires
			}
			of[grant{t.Lease, t.Fence}] = s
		}
	}
	return of
}

// outside tells whether what was done at a time was done outside of two others. Where the clock was set
// in between, the true time counts.
func outside(h *history.History, from, until, at time.Time) bool {
	before, after := at.Before(from), at.After(until)
	if h.Days(at) != h.Days(from) {
		before = h.True(at).Before(h.True(from))
	}
	if h.Days(at) != h.Days(until) {
		after = h.True(at).After(h.True(until))
	}
	return before || after
}
