package check

import (
	"slices"
	"time"

	"github.com/pglease/pglease/internal/torture/history"
)

// queue: those in line are served in the order of coming, by a release itself where somebody waits,
// and nobody who is not in line is served before them.
func queue(h *history.History) []Violation {
	return slices.Concat(ticketOrder(h), comingOrder(h), handedOver(h))
}

// ticketOrder: places are served in the order of their tickets.
func ticketOrder(h *history.History) (found []Violation) {
	for resource, tenures := range tenuresOf(h) {
		var last history.Tenure
		for _, t := range tenures {
			if t.Ticket == 0 {
				continue
			}
			if t.Ticket <= last.Ticket {
				found = append(found, violation(resource, "a later place in line was served first", last, t))
			}
			last = t
		}
	}
	return found
}

// A waited is a call that knew that it was in line, and the tenure that this place got.
type waited struct {
	call   history.Call
	tenure history.Tenure
}

// waitedFor returns who waited for each resource and was served from that place. One whose place a crash
// may have taken is not among them: it may have come to the end of the line again without being told. Nor is one
// in whose time the database's clock was set: that makes all places late and all clients silent, and so passed over.
func waitedFor(h *history.History) map[string][]waited {
	of := map[string][]waited{}
	came := firstAsked(h)
	tenures := byGrant(h)
	for resource, granted := range grantsOf(h) {
		for _, c := range granted {
			t, there := tenures[grantOf(c)]
			served := h.True(t.Acquired)
			if there && t.Ticket != 0 && c.Joined.After(c.Invoked) && !h.Unwritten(c.Joined, served) && !h.Stepped(came(c), served) {
				of[resource] = append(of[resource], waited{c, t})
			}
		}
	}
	return of
}

// comingOrder: who began to wait when another knew that it was in line is served after that one; and
// so is who was granted without a place.
func comingOrder(h *history.History) (found []Violation) {
	tenures := byGrant(h)
	granted := grantsOf(h)
	came := firstAsked(h)
	for resource, waiters := range waitedFor(h) {
		byJoin := slices.SortedFunc(slices.Values(waiters), func(a, b waited) int { return a.call.Joined.Compare(b.call.Joined) })
		byCall := slices.SortedFunc(slices.Values(granted[resource]), func(a, b history.Call) int { return came(a).Compare(came(b)) })
		var last waited // of those in line before the call, the one that was served last
		next := 0
		for _, c := range byCall {
			for ; next < len(byJoin) && byJoin[next].call.Joined.Before(came(c)); next++ {
				if byJoin[next].tenure.Fence > last.tenure.Fence {
					last = byJoin[next]
				}
			}
			t, there := tenures[grantOf(c)]
			if there && t.Fence < last.tenure.Fence && h.True(t.Acquired).After(came(c)) {
				found = append(found, violation(resource, "one that came later was served first", last.call, last.tenure, c, t))
			}
		}
	}
	return found
}

// firstAsked tells when a call's request was first made: made again, it has the place that it had.
func firstAsked(h *history.History) func(history.Call) time.Time {
	first := map[string]time.Time{}
	for _, c := range h.Calls {
		if known, there := first[c.Request]; c.Request != "" && isAcquire(c) && (!there || c.Invoked.Before(known)) {
			first[c.Request] = c.Invoked
		}
	}
	return func(c history.Call) time.Time {
		if at, there := first[c.Request]; there {
			return at
		}
		return c.Invoked
	}
}

// handedOver: a release that finds somebody in line grants to them in its own commit; the resource is
// never free in between.
func handedOver(h *history.History) (found []Violation) {
	released := map[string]history.Call{} // by lease
	for _, c := range h.Calls {
		if c.Call == history.Release && c.Outcome == history.OK {
			released[c.Lease] = c
		}
	}
	all := tenuresOf(h)
	for resource, waiters := range waitedFor(h) {
		tenures := all[resource]
		for _, w := range waiters {
			i := slices.IndexFunc(tenures, func(t history.Tenure) bool { return t.Lease == w.tenure.Lease })
			if i == 0 {
				continue
			}
			before := tenures[i-1]
			_, byHolder := released[before.Lease]
			inLine := w.call.Joined.Before(h.True(before.Ended))
			gap := h.True(w.tenure.Acquired).Sub(h.True(before.Ended))
			if byHolder && before.How == "released" && inLine && gap > time.Millisecond {
				found = append(found, violation(resource, "a release passed over one that was in line: free for "+gap.String(), w.call, before, w.tenure))
			}
		}
	}
	return found
}
