package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/mint"
	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

// A Claim is one attempt at a job, given to this process for a time. Only its methods may be
// called from several goroutines; the fields are for reading.
type Claim struct {
	ID          int64
	Queue       string
	Attempt     int // from 1; one that was snoozed or given back is not counted
	MaxAttempts int
	Priority    int
	RunAt       time.Time
	CreatedAt   time.Time
	Payload     []byte // JSON as it was enqueued
	Partition   string // the partition key; may be empty
	LastError   string // why the attempt before failed; may be empty

	token     fence.Token
	partition fence.Token
	until     atomic.Pointer[time.Time]
}

// Token is what a protected resource must be given with each write of this attempt: of the
// resource "job/<queue>/<id>", with a fence that grows with each claim of the job, and an id of
// this claim alone. The fence is floored by the server's timeline and clock, as that of a lease
// is: it grows also where a failover or a restore lost the last claims.
func (c *Claim) Token() fence.Token { return c.token }

// PartitionToken is for a resource that belongs to the whole partition: of the resource
// "partition/<queue>/<key>", with the partition's generation, which grows with each claim of any
// of its jobs. The zero Token where the job has no partition key.
func (c *Claim) PartitionToken() fence.Token { return c.partition }

// PartitionResource is the name of the resource that PartitionToken is for: "partition/<queue>/<key>".
func PartitionResource(queue, key string) string { return "partition/" + queue + "/" + key }

// Remaining is how long the claim may still be trusted: it counts from before the claim, or the
// last confirmed Extend, was sent. After that another may have the job.
func (c *Claim) Remaining() time.Duration { return max(0, time.Until(*c.until.Load())) }

// trust moves the end of trust, never back.
func (c *Claim) trust(until time.Time) {
	if old := c.until.Load(); old == nil || old.Before(until) {
		c.until.Store(&until)
	}
}

// Claim gives this process up to n jobs of a queue that are due, in the order of priority, time to
// run and id, each for Config.TTL: Extend, or Run's heartbeat, makes that longer. It does not wait:
// an empty answer means that nothing is due. n is at most MaxBatch.
//
// While a queue is busy, a job that another process makes ready with a time to run before that of
// jobs that were claimed already may wait for 50 ms more; no claim begins its search before them
// each time. Where a long transaction keeps the vacuum away, it is ten times as long as that search.
//
// The attempt counts from here, so a job that kills its worker each time is parked in the end.
//
// Where fewer than n are due, and now and then anyway, Claim first does what Tend does.
//
// After an error other than ErrInvalidJob jobs may have been claimed; they run again after the TTL.
func (c *Client) Claim(ctx context.Context, queue string, n int) ([]*Claim, error) {
	if err := checkQueue(queue); err != nil {
		return nil, wrap("claim", "", 0, err)
	}
	if n < 1 || n > MaxBatch {
		return nil, wrap("claim", queue, 0, invalid("%d jobs in one call, not between 1 and %d", n, MaxBatch))
	}
	claims, whole, err := c.claim(ctx, queue, n)
	if err == nil {
		claims, err = c.fill(ctx, queue, n, claims, whole)
	}
	return claims, wrap("claim", queue, 0, err)
}

// CompleteAndClaim ends a claim as Complete does, and gives this process up to n jobs of the same
// queue as Claim does, in one statement and one commit: what a process that works on one job after
// the other does between two of them, for about half of what both calls cost.
//
// Where the claim is over, the error holds a *StaleClaimError; the jobs that were claimed are
// returned beside it and are this process's all the same. After any other error the job may be done
// and others may have been claimed, or nothing happened: the same call again finds out about the
// job, and the others run again after the TTL.
func (c *Client) CompleteAndClaim(ctx context.Context, claim *Claim, n int) ([]*Claim, error) {
	err := checkClaims([]*Claim{claim})
	if err == nil && (n < 1 || n > MaxBatch) {
		err = invalid("%d jobs in one call, not between 1 and %d", n, MaxBatch)
	}
	if err != nil {
		return nil, wrap("complete and claim", "", onlyID([]*Claim{claim}), err)
	}
	got, err := c.completeAndClaim(ctx, claim, n)
	if err != nil {
		return nil, wrap("complete and claim", "", claim.ID, err)
	}
	if !got.ended {
		err = c.alone(ctx, func(db jobsdb.DBTX) error { return c.explain(ctx, db, []*Claim{claim}, Done) })
	}
	claims, failed := c.fill(ctx, claim.Queue, n, got.claims, got.whole)
	return claims, wrap("complete and claim", "", claim.ID, errors.Join(err, failed))
}

// fill looks at the whole queue where that was not done and too little was claimed; does now and
// then what Tend does, and claims again where that moved something. An error means that nothing is
// claimed: with claims in hand what failed is left to the next time.
func (c *Client) fill(ctx context.Context, queue string, n int, claims []*Claim, whole bool) (_ []*Claim, err error) {
	more := func() {
		var more []*Claim
		more, _, err = c.claim(ctx, queue, n-len(claims))
		claims = append(claims, more...)
	}
	if len(claims) < n && !whole { // which made the client forget its front
		more()
	}
	if err == nil && (len(claims) < n || c.due(&c.promoted, tendEvery)) {
		var moved int
		if moved, err = c.tend(ctx); err == nil && moved > 0 && len(claims) < n {
			more()
		}
	}
	if len(claims) > 0 {
		return claims, nil
	}
	return nil, err
}

// claim tells also whether it looked at the whole queue.
func (c *Client) claim(ctx context.Context, queue string, n int) (_ []*Claim, whole bool, err error) {
	var rows []jobsdb.ClaimRow
	var sent time.Time
	l := c.fronts.look(queue)
	err = c.alone(ctx, func(db jobsdb.DBTX) (err error) {
		sent = time.Now()
		rows, err = c.queries.Claim(ctx, db, jobsdb.ClaimParams{
			Queue: queue, MaxJobs: int32(n), WorkerID: c.config.Owner, TTL: c.config.TTL, Froms: l.since[:],
		})
		return err
	})
	if err != nil {
		c.fronts.failed(l)
		return nil, false, err
	}
	c.fronts.found(l, n, rows)
	return newClaims(queue, rows, sent.Add(trusted(c.config.TTL))), l.whole, nil
}

// exchanged is what CompleteAndClaim's statement did.
type exchanged struct {
	claims []*Claim
	ended  bool
	whole  bool // the whole queue was looked at
}

func (c *Client) completeAndClaim(ctx context.Context, claim *Claim, n int) (exchanged, error) {
	var rows []jobsdb.CompleteAndClaimRow
	var sent time.Time
	l := c.fronts.look(claim.Queue)
	err := c.alone(ctx, func(db jobsdb.DBTX) (err error) {
		sent = time.Now()
		rows, err = c.queries.CompleteAndClaim(ctx, db, jobsdb.CompleteAndClaimParams{
			ID: claim.ID, Fence: claim.token.Fence(), Queue: claim.Queue, MaxJobs: int32(n), WorkerID: c.config.Owner, TTL: c.config.TTL, Froms: l.since[:],
		})
		return err
	})
	if err != nil {
		c.fronts.failed(l)
		return exchanged{}, err
	}
	got := exchanged{whole: l.whole}
	var claimed []jobsdb.ClaimRow
	for _, row := range rows {
		if got.ended = row.Ended; row.ID != 0 {
			claimed = append(claimed, jobsdb.ClaimRow{
				ID: row.ID, Priority: row.Priority, RunAt: row.RunAt, Attempt: row.Attempt, MaxAttempts: row.MaxAttempts, Fence: row.Fence,
				PartitionKey: row.PartitionKey, Generation: row.Generation, CreatedAt: row.CreatedAt, ClaimedAt: row.ClaimedAt,
				LastError: row.LastError, Payload: row.Payload,
			})
		}
	}
	c.fronts.found(l, n, claimed)
	got.claims = newClaims(claim.Queue, claimed, sent.Add(trusted(c.config.TTL)))
	return got, nil
}

// newClaims puts the rows into order: RETURNING has none.
func newClaims(queue string, rows []jobsdb.ClaimRow, until time.Time) []*Claim {
	slices.SortFunc(rows, func(a, b jobsdb.ClaimRow) int {
		return cmp.Or(-cmp.Compare(a.Priority, b.Priority), a.RunAt.Compare(b.RunAt), cmp.Compare(a.ID, b.ID))
	})
	claims := make([]*Claim, len(rows))
	for i, row := range rows {
		claims[i] = newClaim(queue, row, until)
	}
	return claims
}

// trusted leaves a hundredth of a time by the database's clock to clocks of other rates.
func trusted(d time.Duration) time.Duration { return d - d/100 }

func newClaim(queue string, row jobsdb.ClaimRow, until time.Time) *Claim {
	c := &Claim{
		ID: row.ID, Queue: queue, Attempt: int(row.Attempt), MaxAttempts: int(row.MaxAttempts), Priority: int(row.Priority),
		RunAt: row.RunAt, CreatedAt: row.CreatedAt, Payload: row.Payload, Partition: row.PartitionKey, LastError: row.LastError,
	}
	c.trust(until)
	id := newUUID()
	c.token = mint.Token("job/"+queue+"/"+strconv.FormatInt(row.ID, 10), row.Fence, id).(fence.Token)
	if row.PartitionKey != "" {
		c.partition = mint.Token(PartitionResource(queue, row.PartitionKey), row.Generation, id).(fence.Token)
	}
	return c
}

func newUUID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails, see crypto/rand
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}
