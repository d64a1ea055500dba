package check

import (
	"slices"
	"time"

	"github.com/pglease/pglease/internal/torture/history"
)

// truth: what a caller was told is what the records say. A call that succeeded took effect once, one
// that was refused never, and one whose outcome its caller does not know either once or never; and
// every effect has its cause.
func truth(h *history.History) []Violation {
	return slices.Concat(publications(h), acquires(h), releases(h), causes(h))
}

// publications: the tries of one publication share a key.
func publications(h *history.History) (found []Violation) {
	type key struct{ store, key string }
	tries := map[key][]history.Call{}
	for _, c := range h.Calls {
		if c.Key != "" {
			tries[key{c.Store, c.Key}] = append(tries[key{c.Store, c.Key}], c)
		}
	}
	writes := map[key][]history.Write{}
	for _, w := range h.Writes {
		k := key{w.Store, w.Key}
		writes[k] = append(writes[k], w)
		if tries[k] == nil {
			found = append(found, violation(w.Resource, "a write that nobody made", w))
		}
	}
	for k, calls := range tries {
		c, there := calls[0], writes[k]
		if len(there) > 1 {
			found = append(found, violation(c.Resource, "a publication was accepted twice", c, there[0], there[1]))
		}
		succeeded := slices.IndexFunc(calls, func(c history.Call) bool { return c.Outcome == history.OK })
		open := slices.ContainsFunc(calls, func(c history.Call) bool { return c.Outcome == history.Unknown })
		switch {
		case succeeded >= 0 && len(there) == 0 && !forgotten(h, calls[succeeded]):
			found = append(found, violation(c.Resource, "a publication was acknowledged and is not there", calls[succeeded]))
		case succeeded < 0 && !open && len(there) > 0:
			found = append(found, violation(c.Resource, "a publication was refused and is there", c, there[0]))
		}
	}
	return found
}

// forgotten tells whether a call's effect may be gone: it was the authority's, and that lost what it
// committed then.
func forgotten(h *history.History, c history.Call) bool {
	authoritys := c.Store == "" || c.Store == history.Counters
	return authoritys && h.Lost(c)
}

// acquires: each request is granted at most once, who was granted a lease finds it on record, and who
// was refused has none.
func acquires(h *history.History) (found []Violation) {
	type request struct{ resource, id string }
	grants := map[request]history.Tenure{}
	for _, t := range h.Tenures {
		r := request{t.Resource, t.Request}
		if first, twice := grants[r]; twice {
			found = append(found, violation(t.Resource, "a request was granted twice", first, t))
		}
		grants[r] = t
	}
	leases := byGrant(h)
	open := map[request]bool{} // a try of it has not returned, or may arrive late
	for _, c := range h.Calls {
		if isAcquire(c) && c.Outcome == history.Unknown {
			open[request{c.Resource, c.Request}] = true
		}
	}
	for _, c := range h.Calls {
		if !isAcquire(c) {
			continue
		}
		r := request{c.Resource, c.Request}
		t, there := grants[r]
		_, known := leases[grantOf(c)]
		switch {
		case c.Outcome == history.OK && !known && !forgotten(h, c):
			found = append(found, violation(c.Resource, "a lease was granted and is not on record", c))
		case c.Outcome == history.Refused && c.Request != "" && !open[r] && there && leftBehind(h, c, t):
			found = append(found, violation(c.Resource, "an acquire was refused, and its request has a lease", c, t))
		}
	}
	return found
}

// leftBehind tells whether a refused acquire left its caller a lease: one that was over when the call
// returned had come while it gave up, and was given back.
func leftBehind(h *history.History, c history.Call, t history.Tenure) bool {
	return !h.Stepped(c.Invoked, c.Returned) && !h.Lost(c) && h.True(t.End()).After(c.Returned)
}

// releases: a lease whose release was confirmed had ended by then, unless a crash may have taken that: a release
// does not wait for the disk.
func releases(h *history.History) (found []Violation) {
	leases := byGrant(h)
	for _, c := range h.Calls {
		if c.Call != history.Release || c.Outcome != history.OK || forgotten(h, c) {
			continue
		}
		t, there := leases[grantOf(c)]
		wentOn := t.How != "released" || h.True(t.Ended).After(c.Returned)
		if there && wentOn && !h.Unwritten(c.Returned, h.True(t.End())) {
			found = append(found, violation(c.Resource, "a release was confirmed, and the lease went on", c, t))
		}
	}
	return found
}

// causes: a lease that its holder was told of ends by release only where that holder released it, or
// was killed before, or has stopped trusting it: others may then clear away what it was handed.
func causes(h *history.History) (found []Violation) {
	asked := map[grant]history.Call{} // the first release of a lease
	for _, c := range h.Calls {
		if first, there := asked[grantOf(c)]; c.Call == history.Release && (!there || c.Invoked.Before(first.Invoked)) {
			asked[grantOf(c)] = c
		}
	}
	leases := byGrant(h)
	for _, granted := range grantsOf(h) {
		for _, c := range granted {
			t, there := leases[grantOf(c)]
			if !there || t.How != "released" || dead(h, c.Process, h.True(t.Ended)) || buried(h, c.Process, t) {
				continue
			}
			first, did := asked[grantOf(c)]
			switch {
			case !did:
				found = append(found, violation(c.Resource, "a lease was released, and not by its holder", c, t))
			case first.Invoked.After(h.True(t.Ended)):
				found = append(found, violation(c.Resource, "a lease was released before its holder did so", c, t, first))
			}
		}
	}
	return found
}

// dead tells whether a process had been killed by then.
func dead(h *history.History, process string, by time.Time) bool {
	return slices.ContainsFunc(h.Faults, func(f history.Fault) bool {
		return f.Kind == history.Killed && f.Target == process && f.From.Before(by)
	})
}

// buried tells whether a tenure may have been ended for a process that seemed dead, because it was stopped or cut off:
// not before half of its time, for which a lease that was handed over is trusted until it is renewed.
func buried(h *history.History, process string, t history.Tenure) bool {
	half := t.Acquired.Add(t.Expires.Sub(t.Acquired) / 2)
	return t.Ticket != 0 && !t.Ended.Before(half) && slices.ContainsFunc(h.Faults, func(f history.Fault) bool {
		return f.Target == process && f.From.Before(h.True(t.Ended)) && f.To.After(h.True(t.Acquired))
	})
}

// settled counts the calls with an unknown outcome, how many of them the records settle, and how many
// acknowledged ones the authority has lost.
func settled(h *history.History) (unknown, resolved, lost int) {
	leases := byGrant(h)
	for _, c := range h.Calls {
		if c.Outcome == history.Unknown {
			unknown++
			_, onRecord := leases[grantOf(c)]
			switch {
			case c.Key != "", c.Call == history.Release && onRecord, isAcquire(c) && c.Request != "":
				if !forgotten(h, c) {
					resolved++
				}
			}
		}
		if _, onRecord := leases[grantOf(c)]; isAcquire(c) && c.Outcome == history.OK && !onRecord {
			lost++
		}
	}
	return unknown, resolved, lost
}
