//go:build linux

package torture

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/pglease/pglease/internal/torture/check"
	"github.com/pglease/pglease/internal/torture/history"
)

// A Report is what a run comes to.
type Report struct {
	Seed       uint64            `json:"seed"`
	Planted    string            `json:"planted,omitempty"`
	Server     string            `json:"server"`
	Duration   string            `json:"duration"`
	Legs       int               `json:"legs"`
	Operations int               `json:"lease_operations"` // acquires, renewals, releases, guarded transactions and breaks
	Calls      map[string]int    `json:"calls"`            // by call and outcome, the renewals on record, and how the waits in the server ended
	Grants     int               `json:"grants"`           // on record at the authority
	Accepted   int               `json:"accepted_writes"`  // on record at the protected resources
	FaultCount int               `json:"faults"`
	Faults     map[string]int    `json:"faults_by_kind"`
	Unknown    int               `json:"unknown_outcomes"`
	Resolved   int               `json:"unknown_resolved"` // of those, how many the records settle
	Forgotten  int               `json:"forgotten"`        // acknowledged by an authority that then lost them
	Violations []check.Violation `json:"violations"`
	History    string            `json:"history,omitempty"` // the file of the leg with violations
}

func (r *Report) add(h *history.History, result check.Result) {
	r.Legs++
	for _, c := range h.Calls {
		r.Calls[c.Call+" "+string(c.Outcome)]++
		if c.Call != history.Establish && c.Call != history.Publish {
			r.Operations++
		}
	}
	renewals := renewals(h.Changes)
	r.Calls["renewal on record"] += renewals
	r.Operations += renewals
	for _, w := range h.Waits {
		r.Calls["wait in the server "+string(w.Ended)]++
	}
	r.Grants += len(h.Tenures)
	r.Accepted += len(h.Writes)
	r.FaultCount += len(h.Faults)
	for _, f := range h.Faults {
		r.Faults[f.Kind]++
		if f.Kind == leaseBroken {
			r.Operations++
		}
	}
	r.Unknown += result.Unknown
	r.Resolved += result.Resolved
	r.Forgotten += result.Forgotten
	r.Violations = append(r.Violations, result.Violations...)
}

// renewals counts the changes that only moved an expiry.
func renewals(changes []history.Change) int {
	n := 0
	last := map[string]history.Change{}
	for _, c := range changes {
		if before := last[c.Resource]; before.Lease == c.Lease && c.Expires.After(before.Expires) {
			n++
		}
		last[c.Resource] = c
	}
	return n
}

func (r *Report) line() string {
	return fmt.Sprintf("%d lease operations, %d grants, %d accepted writes, %d faults of %d kinds, %d unknown outcomes (%d resolved), %d violations",
		r.Operations, r.Grants, r.Accepted, r.FaultCount, len(r.Faults), r.Unknown, r.Resolved, len(r.Violations))
}

// Print tells the report to people.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "seed %d, %s, %d legs, on %s\n%s\n", r.Seed, r.Duration, r.Legs, r.Server, r.line())
	for _, counts := range []map[string]int{r.Calls, r.Faults} {
		fmt.Fprintln(w)
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(w, "  %7d  %s\n", counts[name], strings.ReplaceAll(name, "_", " "))
		}
	}
	for i, v := range r.Violations {
		if i == 0 {
			fmt.Fprintf(w, "\nthe history: %s\n", r.History)
		}
		fmt.Fprintf(w, "\n%s", v)
	}
}
