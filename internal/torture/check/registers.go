package check

import (
	"slices"
	"time"

	"github.com/pglease/pglease/internal/torture/history"
)

// A register is the state of a protected resource: the newest token that it has accepted.
type register struct {
	fence int64
	lease string
}

// takes tells whether the two-level rule lets a token in.
func (r register) takes(c history.Call) bool {
	return c.Fence > r.fence || (c.Fence == r.fence && c.Lease == r.lease)
}

func (r register) raised(c history.Call) register { return register{c.Fence, c.Lease} }

// registers: the calls of all processes on one protected resource are those of a register that takes a
// token which is not older than the newest, and refuses all others: nobody stale is let in, and nobody
// who is current is turned away.
func registers(h *history.History) (found []Violation) {
	calls := map[at][]history.Call{}
	for _, c := range h.Calls {
		if (c.Call == history.Establish || c.Call == history.Publish) && c.Store != history.Counters {
			calls[at{c.Store, c.Resource}] = append(calls[at{c.Store, c.Resource}], c)
		}
	}
	for at, list := range calls {
		if slice, ok := linearize(register{}, registerOperations(list)); !ok {
			found = append(found, violation(at.resource, "no order of the calls is that of a fenced "+at.store, slice...))
		}
	}
	return found
}

func registerOperations(calls []history.Call) []operation[register] {
	certain := slices.DeleteFunc(slices.Clone(calls), func(c history.Call) bool { return c.Outcome != history.OK })
	slices.SortFunc(certain, func(a, b history.Call) int { return a.Returned.Compare(b.Returned) })
	list := make([]operation[register], 0, len(calls))
	for _, c := range calls {
		o := operation[register]{from: c.Invoked.UnixNano(), to: c.Returned.UnixNano(), record: c}
		switch {
		case c.Outcome == history.Unknown:
			o.to = harmlessAfter(certain, c)
			o.step = func(r register) (register, bool) { // it came at this time, or never
				if r.takes(c) {
					return r.raised(c), true
				}
				return r, true
			}
		case c.Outcome == history.Refused && c.Why == history.Stale:
			o.step = func(r register) (register, bool) { return r, !r.takes(c) }
		default: // a conflict is of content, and says that the token was taken
			o.step = func(r register) (register, bool) { return r.raised(c), r.takes(c) }
		}
		list = append(list, o)
	}
	return list
}

// harmlessAfter is a time after which a call that may still arrive changes nothing, because a newer
// token is established by then.
func harmlessAfter(certain []history.Call, c history.Call) int64 {
	for _, k := range certain {
		if k.Fence > c.Fence && k.Returned.After(c.Invoked) {
			return k.Returned.UnixNano() + int64(time.Millisecond)
		}
	}
	return forever
}
