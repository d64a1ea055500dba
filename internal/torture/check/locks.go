package check

import (
	"time"

	"github.com/pglease/pglease/internal/torture/history"
)

// A lock is the state of a resource at the authority: the lease that has it, if one has, and the
// greatest fence so far.
type lock struct {
	lease string
	fence int64
}

// locks: the calls of all processes on one resource are those of a lock that one lease has at a time:
// there is an order of grants, guarded writes and ends in which each is allowed. An end that nobody
// was told of, such as an expiry, comes some time after the moment on record.
func locks(h *history.History) (found []Violation) {
	operations := map[string][]operation[lock]{}
	for _, l := range livesOf(h) {
		operations[l.resource] = append(operations[l.resource], l.operations(h)...)
	}
	for resource, list := range operations {
		if slice, ok := linearize(lock{}, list); !ok {
			found = append(found, violation(resource, "no order of the calls is that of a lock", slice...))
		}
	}
	return found
}

// A life is all that is known of one grant.
type life struct {
	resource string
	lease    string
	fence    int64
	asked    time.Time // the first call that got it; zero where no caller was told
	told     time.Time // when that had returned
	grant    history.Call
	tenure   history.Tenure
	onRecord bool
	release  history.Call // the first
	released history.Call // the first that was confirmed
	guarded  []history.Call
}

func livesOf(h *history.History) map[grant]*life {
	lives := map[grant]*life{}
	for _, t := range h.Tenures {
		lives[grant{t.Lease, t.Fence}] = &life{resource: t.Resource, lease: t.Lease, fence: t.Fence, tenure: t, onRecord: true}
	}
	for _, c := range h.Calls {
		if c.Lease == "" {
			continue
		}
		l := lives[grantOf(c)]
		if l == nil {
			if !isAcquire(c) {
				continue // its grant was lost, and so was the record of who got it
			}
			l = &life{resource: c.Resource, lease: c.Lease, fence: c.Fence}
			lives[grantOf(c)] = l
		}
		l.add(c)
	}
	return lives
}

func (l *life) add(c history.Call) {
	switch {
	case isAcquire(c) && c.Outcome == history.OK && (l.told.IsZero() || c.Returned.Before(l.told)):
		l.asked, l.told, l.grant = c.Invoked, c.Returned, c
	case c.Call == history.Release:
		if l.release.Invoked.IsZero() || c.Invoked.Before(l.release.Invoked) {
			l.release = c
		}
		if c.Outcome == history.OK && (l.released.Invoked.IsZero() || c.Invoked.Before(l.released.Invoked)) {
			l.released = c
		}
	case c.Call == history.Guard && c.Outcome == history.OK:
		l.guarded = append(l.guarded, c)
	}
}

// operations are the steps that the lease takes.
func (l *life) operations(h *history.History) []operation[lock] {
	list := []operation[lock]{l.begin(h), l.end(h)}
	for _, c := range l.guarded {
		list = append(list, operation[lock]{
			from: c.Invoked.UnixNano(), to: c.Returned.UnixNano(), record: c,
			step: func(s lock) (lock, bool) { return s, s.lease == l.lease },
		})
	}
	return list
}

func (l *life) begin(h *history.History) operation[lock] {
	o := operation[lock]{
		from: l.asked.UnixNano(), to: l.told.UnixNano(), record: any(l.grant),
		step: func(s lock) (lock, bool) { return lock{l.lease, l.fence}, s.lease == "" && l.fence > s.fence },
	}
	if l.onRecord {
		acquired := h.True(l.tenure.Acquired).UnixNano()
		switch {
		case l.told.IsZero():
			o.from, o.to, o.record = acquired, acquired+int64(time.Second), l.tenure // committed a little later
		case !l.disturbed(h):
			// A request that named itself may have been granted in an earlier try.
			o.from = acquired
		}
	}
	return o
}

// end is when the lease was over. A confirmed release says so within its time; else the record says
// from when on.
func (l *life) end(h *history.History) operation[lock] {
	o := operation[lock]{
		from: l.asked.UnixNano(), to: forever, record: any(l.tenure),
		step: func(s lock) (lock, bool) { return lock{"", s.fence}, s.lease == l.lease },
	}
	switch {
	case !l.onRecord:
		o.record = l.grant
		if l.released.Outcome == history.OK {
			o.from, o.record = l.release.Invoked.UnixNano(), l.released
		}
	case l.disturbed(h):
		o.from = h.True(l.tenure.Acquired).UnixNano()
		if !l.told.IsZero() {
			o.from = min(o.from, l.asked.UnixNano())
		}
	case l.released.Outcome == history.OK && l.tenure.How == "released":
		o.from, o.to, o.record = l.release.Invoked.UnixNano(), l.released.Returned.UnixNano(), l.released
	default:
		o.from = h.True(l.tenure.End()).UnixNano()
	}
	return o
}

// disturbed tells whether the record of the lease's time cannot be relied on: the authority lost some
// of it, or its clock was set.
func (l *life) disturbed(h *history.History) bool {
	from, to := h.True(l.tenure.Acquired), h.True(l.tenure.End())
	if !l.told.IsZero() && l.asked.Before(from) {
		from = l.asked
	}
	for _, loss := range h.Losses {
		if from.Before(loss.To) && to.After(loss.From) {
			return true
		}
	}
	return h.Stepped(from, to)
}
