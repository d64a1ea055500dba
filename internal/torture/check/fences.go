package check

import (
	"cmp"
	"slices"

	"github.com/pglease/pglease/internal/torture/history"
)

// fences: of one resource they strictly increase over all grants, in the order of the authority's
// record, and in real time for those who were granted them; also across failovers that the record
// has forgotten grants in. No two leases share one.
func fences(h *history.History) []Violation {
	return slices.Concat(sharedFences(h), fencesOnRecord(h), fencesInRealTime(h))
}

func fencesOnRecord(h *history.History) (found []Violation) {
	for resource, tenures := range tenuresOf(h) {
		for i := 1; i < len(tenures); i++ {
			earlier, later := tenures[i-1], tenures[i]
			if h.True(later.Acquired).Before(h.True(earlier.Acquired)) {
				found = append(found, violation(resource, "the greater fence was granted first", earlier, later))
			}
		}
	}
	return found
}

// fencesInRealTime compares each grant with those that were known before it was asked for.
func fencesInRealTime(h *history.History) (found []Violation) {
	for resource, granted := range grantsOf(h) {
		byReturn := slices.SortedFunc(slices.Values(granted), func(a, b history.Call) int { return a.Returned.Compare(b.Returned) })
		byCall := slices.SortedFunc(slices.Values(granted), func(a, b history.Call) int { return a.Invoked.Compare(b.Invoked) })
		var greatest history.Call
		next := 0
		for _, c := range byCall {
			for ; next < len(byReturn) && byReturn[next].Before(c); next++ {
				if byReturn[next].Fence > greatest.Fence {
					greatest = byReturn[next]
				}
			}
			if c.Fence <= greatest.Fence && c.Lease != greatest.Lease {
				found = append(found, violation(resource, "a fence that is not above one granted before", greatest, c))
			}
		}
	}
	return found
}

// sharedFences looks at all who ever named a fence and its lease.
func sharedFences(h *history.History) (found []Violation) {
	type fenceOf struct {
		resource string
		fence    int64
	}
	type seen struct {
		lease  string
		record any
	}
	known := map[fenceOf]seen{}
	look := func(resource string, fence int64, lease string, record any) {
		at := fenceOf{resource, fence}
		first, there := known[at]
		switch {
		case !there:
			known[at] = seen{lease, record}
		case first.lease != lease:
			found = append(found, violation(resource, "two leases share a fence", first.record, record))
		}
	}
	for _, t := range h.Tenures {
		look(t.Resource, t.Fence, t.Lease, t)
	}
	for _, c := range h.Changes {
		look(c.Resource, c.Fence, c.Lease, c)
	}
	for _, granted := range grantsOf(h) {
		for _, c := range granted {
			look(c.Resource, c.Fence, c.Lease, c)
		}
	}
	return found
}

// tenuresOf sorts the tenures of each resource by fence.
func tenuresOf(h *history.History) map[string][]history.Tenure {
	of := map[string][]history.Tenure{}
	for _, t := range h.Tenures {
		of[t.Resource] = append(of[t.Resource], t)
	}
	for _, tenures := range of {
		slices.SortStableFunc(tenures, func(a, b history.Tenure) int { return cmp.Compare(a.Fence, b.Fence) })
	}
	return of
}

// A grant has a lease and a fence. The lease alone does not name it: its id is chosen by who joins a line, and where a
// failover lost the grant and not the place in line, the place is served again, with a greater fence.
type grant struct {
	lease string
	fence int64
}

func grantOf(c history.Call) grant { return grant{c.Lease, c.Fence} }

// byGrant finds a tenure by its grant.
func byGrant(h *history.History) map[grant]history.Tenure {
	of := make(map[grant]history.Tenure, len(h.Tenures))
	for _, t := range h.Tenures {
		of[grant{t.Lease, t.Fence}] = t
	}
	return of
}

func isAcquire(c history.Call) bool {
	return c.Call == history.Acquire || c.Call == history.TryAcquire
}

// grantsOf returns the calls that were granted a lease, by resource.
func grantsOf(h *history.History) map[string][]history.Call {
	of := map[string][]history.Call{}
	for _, c := range h.Calls {
		if isAcquire(c) && c.Outcome == history.OK {
			of[c.Resource] = append(of[c.Resource], c)
		}
	}
	return of
}
