package check

import (
	"slices"

	"github.com/pglease/pglease/internal/torture/history"
)

// successor: once a resource has told an owner that it knows its token, it accepts nothing of an
// earlier one. The times of reports, watermarks and files are of clocks that nobody sets, and are read
// while the row or the directory is locked; a file's is that of its content, before it got its name.
func successor(h *history.History) (found []Violation) {
	known := map[at][]history.Call{}
	for _, c := range h.Calls {
		if c.Outcome == history.OK && (c.Call == history.Establish || c.Call == history.Publish) {
			known[at{c.Store, c.Resource}] = append(known[at{c.Store, c.Resource}], c)
		}
	}
	for at, writes := range writesOf(h) {
		calls := known[at]
		slices.SortFunc(calls, func(a, b history.Call) int { return a.Returned.Compare(b.Returned) })
		slices.SortStableFunc(writes, func(a, b history.Write) int { return a.At.Compare(b.At) })
		var greatest history.Call
		next := 0
		for _, w := range writes {
			for ; next < len(calls) && calls[next].Returned.Before(w.At); next++ {
				if calls[next].Fence > greatest.Fence {
					greatest = calls[next]
				}
			}
			if w.Fence < greatest.Fence {
				found = append(found, violation(at.resource, "a write was accepted though the successor was established there", greatest, w))
			}
		}
	}
	return found
}
