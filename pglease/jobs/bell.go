package jobs

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

// maxRings bounds how many workers one call wakes.
const maxRings = 16

// Ring wakes a worker process that waits for jobs of the queue, if there is one; if none waits,
// nothing is written. Call it after the commit of a transaction with EnqueueTx. It is a hint that
// may be lost: polling finds the jobs anyway.
func (c *Client) Ring(ctx context.Context, queue string) error {
	if err := checkQueue(queue); err != nil {
		return wrap("ring", "", 0, err)
	}
	return wrap("ring", queue, 0, c.ring(ctx, queue, 1))
}

// ring is a transaction of its own, after that of the jobs: a notification in theirs would make
// all who commit one wait for each other.
func (c *Client) ring(ctx context.Context, queue string, jobs int) error {
	_, err := c.queries.Ring(ctx, c.schema.On(c.pool), jobsdb.RingParams{Queue: queue, MaxWorkers: int32(min(jobs, maxRings))})
	return err
}

func channelOf(worker [16]byte) string {
	return "pglease_jobs_" + fence.LeaseID(worker).String()
}

func uuid(id [16]byte) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }
