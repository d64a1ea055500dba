package check

import (
	"time"

	"github.com/pglease/pglease/internal/torture/history"
)

// longestStatement is how long one may take in a server that has no processor to itself.
const longestStatement = 10 * time.Second

// overlap: by the authority's own clock and record, no two leases of a resource are valid at once.
// Where the clock was set back between two tenures, the earlier may have ended at a later time of day;
// then what counts is the true time. One that expired was so by the clock before it was set, so that
// the next grant looked at it must have been under way at that moment.
func overlap(h *history.History) (found []Violation) {
	asked := map[string]time.Time{} // by lease
	for _, granted := range grantsOf(h) {
		for _, c := range granted {
			asked[c.Lease] = c.Invoked
		}
	}
	for resource, tenures := range tenuresOf(h) {
		for i := 1; i < len(tenures); i++ {
			earlier, later := tenures[i-1], tenures[i]
			if !earlier.End().After(later.Acquired) {
				continue
			}
			back := h.Days(later.Acquired) < h.Days(earlier.End())
			from := h.True(later.Acquired).Add(-longestStatement)
			if at, told := asked[later.Lease]; told && at.After(from) {
				from = at
			}
			under := h.Stepped(from, h.True(later.Acquired).Add(time.Second))
			if back && (earlier.How != "expired" || under) && !h.True(earlier.End()).After(h.True(later.Acquired)) {
				continue
			}
			found = append(found, violation(resource, "two leases were valid at the same time of the database", earlier, later))
		}
	}
	return found
}
