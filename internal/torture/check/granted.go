package check

import "github.com/pglease/pglease/internal/torture/history"

// granted: every write that was accepted carries the fence and the lease of a grant: one that the
// authority has on record, or one that it told somebody of before it lost it.
func granted(h *history.History) (found []Violation) {
	type token struct {
		resource, lease string
		fence           int64
	}
	known := map[token]bool{}
	for _, t := range h.Tenures {
		known[token{t.Resource, t.Lease, t.Fence}] = true
	}
	for _, calls := range grantsOf(h) {
		for _, c := range calls {
			known[token{c.Resource, c.Lease, c.Fence}] = true
		}
	}
	for _, w := range h.Writes {
		if !known[token{w.Resource, w.Lease, w.Fence}] {
			found = append(found, violation(w.Resource, "a write was accepted under a token that was never granted", w))
		}
	}
	return found
}
