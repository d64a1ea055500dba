package check

import (
	"cmp"
	"slices"

	"github.com/pglease/pglease/internal/torture/history"
)

// at is one protected resource of one kind.
type at struct{ store, resource string }

// writesOf returns what each resource accepted, in its own order.
func writesOf(h *history.History) map[at][]history.Write {
	of := map[at][]history.Write{}
	for _, w := range h.Writes {
		of[at{w.Store, w.Resource}] = append(of[at{w.Store, w.Resource}], w)
	}
	for _, writes := range of {
		slices.SortStableFunc(writes, func(a, b history.Write) int { return cmp.Compare(a.Number, b.Number) })
	}
	return of
}

// accepted: the fences that a resource accepts never decrease, and one fence is one lease's.
func accepted(h *history.History) (found []Violation) {
	for at, writes := range writesOf(h) {
		for i := 1; i < len(writes); i++ {
			earlier, later := writes[i-1], writes[i]
			switch {
			case later.Fence < earlier.Fence:
				found = append(found, violation(at.resource, "a lower fence was accepted after a higher one", earlier, later))
			case later.Fence == earlier.Fence && later.Lease != earlier.Lease:
				found = append(found, violation(at.resource, "two leases were accepted under one fence", earlier, later))
			}
		}
	}
	return found
}
