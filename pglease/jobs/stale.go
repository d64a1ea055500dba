package jobs

import (
	"context"
	"errors"
	"slices"

	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

// explain says what became of claims that a step did not touch. A job that is in the good state
// under the very claim is no error. The statement comes after the one that touched nothing: it
// sees what that one met.
func (c *Client) explain(ctx context.Context, db jobsdb.DBTX, claims []*Claim, good State) error {
	if len(claims) == 0 {
		return nil
	}
	ids, _ := numbers(claims)
	rows, err := c.queries.ClaimStates(ctx, db, ids)
	if err != nil {
		return err
	}
	states := make(map[int64]jobsdb.ClaimStatesRow, len(rows))
	for _, row := range rows {
		states[row.ID] = row
	}
	var stale []error
	for _, claim := range claims {
		row := states[claim.ID]
		if good != "" && State(row.State) == good && row.Fence == claim.token.Fence() {
			continue
		}
		stale = append(stale, &StaleClaimError{
			ID: claim.ID, Attempt: claim.Attempt, Fence: claim.token.Fence(),
			State: State(row.State), Current: row.Fence, Worker: row.WorkerID,
		})
	}
	return errors.Join(stale...)
}

// StaleClaims returns every *StaleClaimError in err: which of the claims of one call were over.
func StaleClaims(err error) []*StaleClaimError {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself, all branches of it
	case *StaleClaimError:
		return []*StaleClaimError{e}
	case interface{ Unwrap() error }:
		return StaleClaims(e.Unwrap())
	case interface{ Unwrap() []error }:
		var all []*StaleClaimError
		for _, below := range e.Unwrap() {
			all = append(all, StaleClaims(below)...)
		}
		return all
	}
	return nil
}

func checkClaims(claims []*Claim) error {
	if len(claims) > MaxBatch {
		return invalid("%d claims in one call, the limit is %d", len(claims), MaxBatch)
	}
	if slices.Contains(claims, nil) {
		return invalid("a claim is nil")
	}
	return nil
}

func numbers(claims []*Claim) (ids, fences []int64) {
	ids, fences = make([]int64, len(claims)), make([]int64, len(claims))
	for i, claim := range claims {
		ids[i], fences[i] = claim.ID, claim.token.Fence()
	}
	return ids, fences
}

// A claimKey tells claims apart. The job alone does not: a process may have an attempt that it
// lost, and the next one of the same job.
type claimKey struct{ ID, Fence int64 }

func (c *Claim) key() claimKey { return claimKey{c.ID, c.token.Fence()} }

// without returns the claims that are not among those given.
func without(claims []*Claim, done map[claimKey]bool) []*Claim {
	return slices.DeleteFunc(slices.Clone(claims), func(c *Claim) bool { return done[c.key()] })
}

func onlyID(claims []*Claim) int64 {
	if len(claims) == 1 && claims[0] != nil {
		return claims[0].ID
	}
	return 0
}
