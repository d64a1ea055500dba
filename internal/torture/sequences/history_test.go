package sequences_test

import (
	"errors"
	"testing"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

// accepted is a version that the report should have: who wrote it, and what.
type accepted struct {
	by   fence.Token
	body string
}

// wantHistory holds the report's own history to what should have been accepted, version by version,
// and to what is true of every history: no version was written under a lower fence than one before it,
// and each under a lease that the authority granted.
func (s *stage) wantHistory(t *testing.T, want ...accepted) {
	t.Helper()
	history := s.soundHistory(t)
	if len(history) != len(want) {
		t.Fatalf("the report has %d versions, want %d: %+v", len(history), len(want), history)
	}
	for i, v := range history {
		found, err := s.reports.ReadVersion(t.Context(), s.report, v.Number)
		if err != nil {
			t.Fatal(err)
		}
		if v.Fence != want[i].by.Fence() || v.LeaseID != want[i].by.LeaseID() || string(found.Body) != want[i].body {
			t.Errorf("version %d is %q under fence %d, want %q under %v", v.Number, found.Body, v.Fence, want[i].body, want[i].by)
		}
	}
}

func (s *stage) soundHistory(t *testing.T) []reportstore.Version {
	t.Helper()
	history, err := s.reports.History(t.Context(), s.report)
	if err != nil {
		t.Fatal(err)
	}
	if stale := reportstore.Regressions(history); len(stale) > 0 {
		t.Errorf("an older owner wrote over a newer one's work: %+v", stale)
	}
	grants := s.grants(t)
	for i, v := range history {
		if v.Number != int64(i)+1 {
			t.Errorf("version %d stands at place %d", v.Number, i+1)
		}
		if grants[v.Fence] != v.LeaseID.String() {
			t.Errorf("version %d was written under fence %d, lease %s, which was never granted", v.Number, v.Fence, v.LeaseID)
		}
	}
	return history
}

// wantRefused holds the report's record of refusals to those that should have been: stale owners, the
// first one first.
func (s *stage) wantRefused(t *testing.T, want ...fence.Token) {
	t.Helper()
	refusals, err := s.reports.Rejections(t.Context(), s.report)
	if err != nil {
		t.Fatal(err)
	}
	if len(refusals) != len(want) {
		t.Fatalf("%d refusals on record, want %d: %+v", len(refusals), len(want), refusals)
	}
	for i, token := range want {
		r := refusals[len(refusals)-1-i]
		if !errors.Is(r.Err, fence.ErrStaleOwner) || r.Fence != token.Fence() || r.LeaseID != token.LeaseID() || r.Greatest.Fence <= r.Fence {
			t.Errorf("refused: %+v, want %v", r, token)
		}
	}
}
