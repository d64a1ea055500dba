package jobs

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

const (
	// tendEvery is how often claims that are over and partitions are looked after.
	tendEvery = time.Second

	reapBatch    = 500
	promoteBatch = 500
	pruneBatch   = 1000
)

// Tend takes jobs from claims whose time is over, and moves partitions on whose job is over. It
// reports how many jobs became ready or were parked. Run does it every second, and Claim when it
// finds too little; any number of processes may do it at once.
func (c *Client) Tend(ctx context.Context) (int, error) {
	c.reaped.Store(0)
	moved, err := c.tend(ctx)
	return moved, wrap("tend", "", 0, err)
}

func (c *Client) tend(ctx context.Context) (moved int, err error) {
	if c.due(&c.reaped, min(tendEvery, c.config.TTL/4)) {
		if moved, err = c.reap(ctx); err != nil {
			return moved, err
		}
	}
	promoted, err := c.promote(ctx)
	return moved + promoted, err
}

// reap ends claims whose time is over, in batches until there are none.
func (c *Client) reap(ctx context.Context) (moved int, err error) {
	for {
		var rows []jobsdb.ReapRow
		err := c.alone(ctx, func(db jobsdb.DBTX) (err error) {
			rows, err = c.queries.Reap(ctx, db, reapBatch)
			return err
		})
		for _, row := range rows {
			c.config.Logger.Warn("a claim was cut off: its worker was not heard of",
				"job", row.ID, "queue", row.Queue, "attempt", row.Attempt, "worker", row.WorkerID, "state", row.State)
			c.events.emit(Event{
				Kind: EventCutOff, Queue: row.Queue, Job: row.ID, Attempt: int(row.Attempt), Fence: row.Fence, Worker: row.WorkerID, State: State(row.State),
			})
		}
		if moved += len(rows); err != nil || len(rows) < reapBatch {
			return moved, err
		}
	}
}

// promote looks at the partitions that something happened to. A look without a lock comes first:
// mostly there is nothing.
func (c *Client) promote(ctx context.Context) (moved int, err error) {
	for {
		signalled, err := c.queries.Signalled(ctx, c.schema.On(c.pool))
		if err != nil || !signalled {
			return moved, err
		}
		keys, ready, err := c.promoteSome(ctx)
		if ready > 0 {
			c.fronts.forget() // the time to run of what waited is long ago
		}
		if moved += ready; err != nil || keys == 0 {
			return moved, err
		}
	}
}

func (c *Client) promoteSome(ctx context.Context) (keys, ready int, err error) {
	for range tries { // a person who drops several of the heads at once may be in the way
		keys, ready, err = c.promoteOnce(ctx)
		if !tookNoEffect(err) || pause(ctx, rand.N(10*time.Millisecond)) != nil {
			break
		}
	}
	return keys, ready, err
}

func (c *Client) promoteOnce(ctx context.Context) (keys, ready int, err error) {
	err = c.inTx(ctx, func(db jobsdb.DBTX) error {
		locked, err := c.queries.LockPartitions(ctx, db, jobsdb.LockPartitionsParams{
			Prefix: c.schema.Name() + "\x01", MaxKeys: promoteBatch,
		})
		if err != nil || len(locked) == 0 {
			return err
		}
		var p jobsdb.PromoteParams
		for _, key := range locked {
			p.Queues, p.PartitionKeys = append(p.Queues, key.Queue), append(p.PartitionKeys, key.PartitionKey)
		}
		rows, err := c.queries.Promote(ctx, db, p)
		keys, ready = len(locked), len(rows)
		return err
	})
	return keys, ready, err
}

// Prune deletes jobs of all queues that were over for longer than age, and partitions that had no
// job for a day. It reports how many rows went. A finished job that still keeps a unique key stays.
// Run does it every minute, with Config.KeepFinished.
func (c *Client) Prune(ctx context.Context, age time.Duration) (int64, error) {
	if age < 0 {
		return 0, wrap("prune", "", 0, invalid("the age %v is negative", age))
	}
	n, err := inBatches(func() (int64, error) {
		return c.queries.Prune(ctx, c.schema.On(c.pool), jobsdb.PruneParams{Age: age, MaxRows: pruneBatch})
	})
	if err == nil {
		var partitions int64
		partitions, err = inBatches(func() (int64, error) {
			return c.queries.PrunePartitions(ctx, c.schema.On(c.pool), pruneBatch)
		})
		n += partitions
	}
	return n, wrap("prune", "", 0, err)
}

// inBatches repeats a step while it finds a whole batch.
func inBatches(step func() (int64, error)) (all int64, err error) {
	for {
		n, err := step()
		if all += n; err != nil || n < pruneBatch {
			return all, err
		}
	}
}
