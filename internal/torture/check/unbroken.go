package check

import (
	"time"

	"github.com/pglease/pglease/internal/torture/history"
)

// between is how far a statement's two looks at the clock may be apart, where the processor was taken
// from it in the middle.
const between = 50 * time.Millisecond

// unbroken: the time that a lease is valid is one interval. An expired or ended lease is never made
// valid again, its fence never changes, and the lease in a row changes only to one with a greater
// fence.
func unbroken(h *history.History) (found []Violation) {
	last := map[string]history.Change{}
	for _, c := range h.Changes {
		before, known := last[c.Resource]
		last[c.Resource] = c
		if !known {
			continue
		}
		if text := broken(before, c); text != "" {
			found = append(found, violation(c.Resource, text, before, c))
		}
	}
	return found
}

// broken tells what is wrong with a change of a lease's row. c.At is when its expiry was computed.
func broken(before, c history.Change) string {
	switch {
	case c.Lease != before.Lease:
		if c.Fence <= before.Fence {
			return "another lease has the row, and its fence is not greater"
		}
	case c.Fence != before.Fence:
		return "the fence of a lease changed"
	case before.Ended && !c.Ended:
		return "a lease that had ended is valid again"
	case c.Expires.Before(before.Expires):
		return "a lease was made shorter"
	case c.Expires.After(before.Expires) && c.At.After(before.Expires.Add(between)):
		return "a lease that had expired was renewed"
	}
	return ""
}
