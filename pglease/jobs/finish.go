package jobs

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

// Complete ends the jobs of these claims as done, in one statement. It may be repeated: a job that
// was completed under this very claim is no error. For each claim that is over, the error holds a
// *StaleClaimError and nothing of that job was changed; the others are done. At most MaxBatch.
//
// After any other error the jobs may be done or not: the same call again finds out.
func (c *Client) Complete(ctx context.Context, claims ...*Claim) error {
	err := checkClaims(claims)
	if err == nil {
		err = c.alone(ctx, func(db jobsdb.DBTX) error { return c.complete(ctx, db, claims) })
	}
	return wrap("complete", "", onlyID(claims), err)
}

// CompleteTx is Complete within the caller's transaction. Together with the job's effect in the
// same database it makes that effect happen exactly once: where the claim is stale, roll back.
func (c *Client) CompleteTx(ctx context.Context, tx pgx.Tx, claims ...*Claim) error {
	err := checkClaims(claims)
	if err == nil {
		err = c.complete(ctx, c.schema.On(tx), claims)
	}
	return wrap("complete", "", onlyID(claims), err)
}

func (c *Client) complete(ctx context.Context, db jobsdb.DBTX, claims []*Claim) error {
	done := map[claimKey]bool{}
	var err error
	switch len(claims) {
	case 0:
		return nil
	case 1:
		_, err = c.queries.CompleteOne(ctx, db, jobsdb.CompleteOneParams{ID: claims[0].ID, Fence: claims[0].token.Fence()})
		if err == nil {
			return nil
		}
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
	default:
		ids, fences := numbers(claims)
		var rows []jobsdb.CompleteRow
		rows, err = c.queries.Complete(ctx, db, jobsdb.CompleteParams{Ids: ids, Fences: fences})
		for _, row := range rows {
			done[claimKey(row)] = true
		}
	}
	if err != nil {
		return err
	}
	return c.explain(ctx, db, without(claims, done), Done)
}

// A Failure says how an attempt ended.
type Failure struct {
	// Reason is for people: at most MaxErrorLength bytes of UTF-8 without NUL.
	Reason string

	// Delay is how long to wait before the next attempt. Default: Config.RetryBase, doubled with
	// each attempt, with jitter. NoDelay: none.
	Delay time.Duration

	// Park gives the job up now, however many attempts are left.
	Park bool
}

// NoDelay as a Failure's Delay makes the job ready at once.
const NoDelay time.Duration = -1

// Fail ends an attempt: the job is ready again after the delay, or parked after its last attempt.
// It answers with the state. The error holds a *StaleClaimError where the claim is over.
func (c *Client) Fail(ctx context.Context, claim *Claim, f Failure) (State, error) {
	delay := f.Delay
	switch {
	case delay == 0 && claim != nil:
		delay = c.backoff(claim.Attempt)
	case delay == NoDelay:
		delay = 0
	}
	err := errors.Join(checkClaims([]*Claim{claim}), checkText("reason of a failure", f.Reason, MaxErrorLength))
	if err == nil && (delay < 0 || delay > MaxDelay) {
		err = invalid("delay %v is not between 0 and %v", delay, MaxDelay)
	}
	var state string
	if err == nil {
		err = c.alone(ctx, func(db jobsdb.DBTX) (err error) {
			state, err = c.queries.Fail(ctx, db, jobsdb.FailParams{
				ID: claim.ID, Fence: claim.token.Fence(), LastError: f.Reason, Delay: delay, Park: f.Park,
			})
			if errors.Is(err, pgx.ErrNoRows) {
				return c.explain(ctx, db, []*Claim{claim}, "")
			}
			return err
		})
	}
	return State(state), wrap("fail", "", onlyID([]*Claim{claim}), err)
}

// backoff is the pause after an attempt. An attempt is counted from 1.
func (c *Client) backoff(attempt int) time.Duration {
	grown := float64(c.config.RetryBase) * math.Pow(2, float64(max(attempt, 1)-1))
	return jitter(time.Duration(math.Min(grown, float64(c.config.RetryMax))), 0.25)
}

// Snooze gives the job back until d from now, by the database's clock. The attempt is not counted.
// The error holds a *StaleClaimError where the claim is over.
func (c *Client) Snooze(ctx context.Context, claim *Claim, d time.Duration) error {
	err := checkClaims([]*Claim{claim})
	if err == nil && (d <= 0 || d > MaxDelay) {
		err = invalid("delay %v is not between 0 and %v", d, MaxDelay)
	}
	if err != nil {
		return wrap("snooze", "", onlyID([]*Claim{claim}), err)
	}
	return wrap("snooze", "", claim.ID, c.putBack(ctx, []*Claim{claim}, d))
}

// Return gives jobs back as if they had not been claimed: ready at the time that they had. The
// attempts are not counted. For each claim that is over the error holds a *StaleClaimError.
func (c *Client) Return(ctx context.Context, claims ...*Claim) error {
	err := checkClaims(claims)
	if err == nil && len(claims) > 0 {
		err = c.putBack(ctx, claims, 0)
	}
	return wrap("return", "", onlyID(claims), err)
}

func (c *Client) putBack(ctx context.Context, claims []*Claim, d time.Duration) error {
	defer c.fronts.forget() // the jobs' time to run may be what it was
	ids, fences := numbers(claims)
	return c.alone(ctx, func(db jobsdb.DBTX) error {
		rows, err := c.queries.PutBack(ctx, db, jobsdb.PutBackParams{Ids: ids, Fences: fences, Delay: d})
		if err != nil {
			return err
		}
		done := make(map[claimKey]bool, len(rows))
		for _, row := range rows {
			done[claimKey(row)] = true
		}
		return c.explain(ctx, db, without(claims, done), "")
	})
}

// Extend gives the claims their whole time again, Config.TTL from now: one heartbeat for many, in
// one statement, at most MaxBatch. For each claim that is over the error holds a *StaleClaimError;
// the others are extended. A row that somebody has locked just now is left for the next time, and
// is no error: Remaining tells what is certain.
func (c *Client) Extend(ctx context.Context, claims ...*Claim) error {
	err := checkClaims(claims)
	if err == nil {
		err = c.alone(ctx, func(db jobsdb.DBTX) error { return c.extend(ctx, db, claims) })
	}
	return wrap("extend", "", onlyID(claims), err)
}

func (c *Client) extend(ctx context.Context, db jobsdb.DBTX, claims []*Claim) error {
	if len(claims) == 0 {
		return nil
	}
	ids, fences := numbers(claims)
	sent := time.Now()
	rows, err := c.queries.Extend(ctx, db, jobsdb.ExtendParams{Ids: ids, Fences: fences, TTL: c.config.TTL})
	if err != nil {
		return err
	}
	remaining := make(map[claimKey]time.Duration, len(rows))
	extended := make(map[claimKey]bool, len(rows))
	for _, row := range rows {
		key := claimKey{row.ID, row.Fence}
		extended[key], remaining[key] = true, row.Remaining
	}
	for _, claim := range claims {
		if left, ok := remaining[claim.key()]; ok {
			claim.trust(sent.Add(trusted(min(left, c.config.TTL))))
		}
	}
	return c.explain(ctx, db, without(claims, extended), Running)
}
