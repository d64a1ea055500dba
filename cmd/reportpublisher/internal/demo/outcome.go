package demo

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

// The names of the workers, in the database too.
const (
	first  = "W1"
	second = "W2"
)

// An Outcome is what the database says when the story is over.
type Outcome struct {
	Fenced        bool      `json:"fenced"`
	W1Fence       int64     `json:"w1_fence"`
	W2Fence       int64     `json:"w2_fence"`
	W1Result      string    `json:"w1_result"`      // stale_owner or applied
	FinalBodyBy   string    `json:"final_body_by"`  // whose report stands
	InvariantHeld bool      `json:"invariant_held"` // no version was accepted under a lower fence than one before
	History       []Version `json:"history"`
}

// A Version is one entry of the report's own history.
type Version struct {
	Version int64  `json:"version"`
	Fence   int64  `json:"fence"`
	By      string `json:"by"`
}

// AsPromised returns nil if the outcome is the one that the mode promises. With fencing W1 is
// refused and W2's report stands; without, W1 overwrites it.
func (o Outcome) AsPromised() error {
	result, by := resultStaleOwner, second
	if !o.Fenced {
		result, by = resultApplied, first
	}
	switch {
	case o.W1Fence >= o.W2Fence:
		return fmt.Errorf("W1's fence %d is not below W2's %d", o.W1Fence, o.W2Fence)
	case o.W1Result != result:
		return fmt.Errorf("W1's write came to %q, promised was %q", o.W1Result, result)
	case o.FinalBodyBy != by:
		return fmt.Errorf("the report is by %q, promised was %q", o.FinalBodyBy, by)
	case o.InvariantHeld != o.Fenced:
		return fmt.Errorf("invariant held: %t, promised was %t", o.InvariantHeld, o.Fenced)
	}
	return nil
}

// verdict is the outcome in a sentence or two.
func (o Outcome) verdict(computed map[string]event) string {
	if err := o.AsPromised(); err != nil {
		return fmt.Sprintf("NOT AS PROMISED: %v.", err)
	}
	if o.Fenced {
		return fmt.Sprintf("HELD: the report is W2's, total %s. W1 wrote late under fence %d, and no version was accepted under a lower fence than one before it.",
			computed[second].Total, o.W1Fence)
	}
	return fmt.Sprintf("CORRUPTED: the report is W1's older one, total %s, over W2's, total %s, though W1's fence %d is below W2's %d. The lease alone did not prevent it.",
		computed[first].Total, computed[second].Total, o.W1Fence, o.W2Fence)
}

// outcome reads what happened. bodies are the workers' reports, to tell whose the published one
// is by its content and not by what its writer said.
func (s *stage) outcome(ctx context.Context, report string, bodies map[string]event) (Outcome, error) {
	w1, err1 := s.tenureOf(ctx, report, first)
	w2, err2 := s.tenureOf(ctx, report, second)
	history, err3 := s.reports.History(ctx, report)
	rejections, err4 := s.reports.Rejections(ctx, report)
	now, err5 := s.reports.Read(ctx, report)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return Outcome{}, err
	}
	o := Outcome{
		W1Fence:       w1.fence,
		W2Fence:       w2.fence,
		W1Result:      resultOf(w1, history, rejections),
		InvariantHeld: len(reportstore.Regressions(history)) == 0,
	}
	for _, v := range history {
		o.History = append(o.History, Version{Version: v.Number, Fence: v.Fence, By: v.Owner})
	}
	for who, computed := range bodies {
		if computed.Hash == hex.EncodeToString(now.Hash[:]) {
			o.FinalBodyBy = who
		}
	}
	return o, nil
}

// resultOf is what became of the write under this lease, empty where the store never saw one.
func resultOf(t tenure, history []reportstore.Version, rejections []reportstore.Rejection) string {
	for _, v := range history {
		if v.LeaseID == t.lease {
			return resultApplied
		}
	}
	for _, r := range rejections {
		if r.LeaseID == t.lease {
			if errors.Is(r.Err, fence.ErrStaleOwner) {
				return resultStaleOwner
			}
			return resultConflict
		}
	}
	return ""
}
