package jobs

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

// Enqueue adds jobs, all or none, in one transaction, and wakes workers that wait. There is one
// Receipt for each job, in the same order; one whose unique key is taken gets the job that has it.
//
// The error matches ErrInvalidJob where a job is out of bounds, or there are more than
// MaxBatch, or MaxCallSize bytes: nothing was sent. After any other error the jobs may have been added or not; with unique keys
// the call can be repeated.
func (c *Client) Enqueue(ctx context.Context, jobs ...Job) ([]Receipt, error) {
	b, err := c.newBatch(jobs)
	if err != nil || len(jobs) == 0 {
		return nil, wrap("enqueue", queueOf(jobs), 0, err)
	}
	run := c.alone
	if len(b.names) > 0 {
		run = c.inTx // locks on keys last until the transaction ends
	}
	if err := run(ctx, func(db jobsdb.DBTX) error { return b.add(ctx, db) }); err != nil {
		return nil, wrap("enqueue", queueOf(jobs), 0, err)
	}
	b.added()
	for queue, n := range b.awaited {
		_ = c.ring(ctx, queue, n) // a hint: who misses it polls
	}
	return b.receipts, nil
}

// EnqueueTx is Enqueue within the caller's transaction: the jobs exist when that commits, together
// with all else in it, and not before. Nobody can be woken before the commit: call Ring after it,
// or leave it to the workers' polling.
//
// Jobs with a partition or a unique key lock that key until the transaction ends: others who
// enqueue under the same key wait, workers do not. So enqueue last, and commit soon; who enqueues
// under several keys in several calls keeps to one order of keys. No failing statement is provoked
// in the transaction on purpose. Above READ COMMITTED a rival for a unique key can end it with a
// serialization failure (SQLSTATE 40001).
func (c *Client) EnqueueTx(ctx context.Context, tx pgx.Tx, jobs ...Job) ([]Receipt, error) {
	b, err := c.newBatch(jobs)
	if err != nil || len(jobs) == 0 {
		return nil, wrap("enqueue", queueOf(jobs), 0, err)
	}
	if err := b.add(ctx, c.schema.On(tx)); err != nil {
		return nil, wrap("enqueue", queueOf(jobs), 0, err)
	}
	b.added()
	return b.receipts, nil
}

func queueOf(jobs []Job) string {
	if len(jobs) == 0 || len(jobs[0].Queue) > MaxQueueLength {
		return ""
	}
	return jobs[0].Queue
}

// A batch is one call of Enqueue under way.
type batch struct {
	client   *Client
	jobs     []Job
	names    []string // of keys to lock, with the schema and the queue before them
	timed    bool     // a job has a time to run of its own, perhaps long ago
	receipts []Receipt
	awaited  map[string]int // queues with waiting workers, and how many jobs they got
}

type uniqueKey struct{ queue, key string }

func (c *Client) newBatch(jobs []Job) (*batch, error) {
	if len(jobs) > MaxBatch {
		return nil, invalid("%d jobs in one call, the limit is %d", len(jobs), MaxBatch)
	}
	b := &batch{client: c, jobs: jobs, receipts: make([]Receipt, len(jobs)), awaited: map[string]int{}}
	size := 0
	for i, job := range jobs {
		if size += len(job.Payload); size > MaxCallSize {
			return nil, invalid("the payloads of one call have more than %d bytes", MaxCallSize)
		}
		if err := job.Check(); err != nil {
			if len(jobs) > 1 {
				err = fmt.Errorf("number %d of the call: %w", i, err)
			}
			return nil, err
		}
		b.timed = b.timed || !job.RunAt.IsZero()
		if job.Partition != "" {
			b.names = append(b.names, c.schema.Name()+"\x01p\x01"+job.Queue+"\x01"+job.Partition)
		}
		if job.Unique.Key != "" {
			b.names = append(b.names, c.schema.Name()+"\x01u\x01"+job.Queue+"\x01"+job.Unique.Key)
		}
	}
	return b, nil
}

// add locks the keys, adds what is free, and looks up what is not. Under the locks only a worker
// can change who has a key, by ending that job; then the key is free and the job is added after all.
func (b *batch) add(ctx context.Context, db jobsdb.DBTX) error {
	if len(b.names) > 0 {
		if err := b.client.queries.LockNames(ctx, db, b.names); err != nil {
			return err
		}
	}
	left := make([]int, len(b.jobs))
	for i := range left {
		left[i] = i
	}
	for range tries {
		missing, err := b.insert(ctx, db, left)
		if err == nil && len(missing) > 0 {
			missing, err = b.duplicates(ctx, db, missing)
		}
		if err != nil || len(missing) == 0 {
			return err
		}
		left = missing
	}
	return errRivals
}

// added makes the client look for jobs whose time to run is perhaps before that of the last claims.
func (b *batch) added() {
	if b.timed {
		b.client.fronts.forget()
	}
}

// insert adds the jobs at the given places and returns the places of those that it did not.
func (b *batch) insert(ctx context.Context, db jobsdb.DBTX, places []int) (missing []int, err error) {
	rows, err := b.client.queries.Enqueue(ctx, db, b.params(places))
	if err != nil {
		return nil, err
	}
	// Ids are drawn in the order of the call. Rows of unique jobs are known by their keys; the
	// others come in that order.
	unique := map[uniqueKey]jobsdb.EnqueueRow{}
	var plain []jobsdb.EnqueueRow
	for _, row := range rows {
		if row.Awaited {
			b.awaited[row.Queue]++
		}
		if row.UniqueKey == "" {
			plain = append(plain, row)
		} else {
			unique[uniqueKey{row.Queue, row.UniqueKey}] = row
		}
	}
	for _, i := range places {
		key := uniqueKey{b.jobs[i].Queue, b.jobs[i].Unique.Key}
		row, added := unique[key]
		if key.key == "" {
			row, plain, added = plain[0], plain[1:], true
		}
		delete(unique, key) // a second one in the same call is a duplicate
		if !added {
			missing = append(missing, i)
			continue
		}
		b.receipts[i] = Receipt{ID: row.ID, State: State(row.State)}
	}
	return missing, nil
}

// duplicates answers for jobs whose keys are taken, and returns those whose keys are free by now.
func (b *batch) duplicates(ctx context.Context, db jobsdb.DBTX, places []int) (free []int, err error) {
	var p jobsdb.HoldersParams
	for _, i := range places {
		p.Queues, p.UniqueKeys = append(p.Queues, b.jobs[i].Queue), append(p.UniqueKeys, b.jobs[i].Unique.Key)
	}
	rows, err := b.client.queries.Holders(ctx, db, p)
	if err != nil {
		return nil, err
	}
	holders := map[uniqueKey]jobsdb.HoldersRow{}
	var lapsed []int64
	for _, row := range rows {
		if row.Lapsed {
			lapsed = append(lapsed, row.ID)
			continue
		}
		holders[uniqueKey{row.Queue, row.UniqueKey}] = row
	}
	for _, i := range places {
		row, taken := holders[uniqueKey{b.jobs[i].Queue, b.jobs[i].Unique.Key}]
		if !taken {
			free = append(free, i)
			continue
		}
		b.receipts[i] = Receipt{ID: row.ID, State: State(row.State), Duplicate: true}
	}
	if len(lapsed) > 0 {
		err = b.client.queries.FreeKeys(ctx, db, lapsed)
	}
	return free, err
}

func (b *batch) params(places []int) jobsdb.EnqueueParams {
	var p jobsdb.EnqueueParams
	for _, i := range places {
		j := b.jobs[i]
		payload := "null"
		if j.Payload != nil {
			payload = string(j.Payload)
		}
		runAt := j.RunAt
		if !runAt.IsZero() && runAt.Before(time.Unix(0, 0)) {
			runAt = time.Unix(0, 0)
		}
		p.Queues = append(p.Queues, j.Queue)
		p.Priorities = append(p.Priorities, int16(j.Priority))
		p.RunAts = append(p.RunAts, runAt)
		p.Delays = append(p.Delays, j.Delay.Microseconds())
		p.MaxAttempts = append(p.MaxAttempts, int32(cmp.Or(j.MaxAttempts, b.client.config.MaxAttempts)))
		p.PartitionKeys = append(p.PartitionKeys, j.Partition)
		p.UniqueKeys = append(p.UniqueKeys, j.Unique.Key)
		p.UniqueFor = append(p.UniqueFor, j.Unique.For.Microseconds())
		p.UniqueWaits = append(p.UniqueWaits, j.Unique.WhileWaiting)
		p.Payloads = append(p.Payloads, payload)
	}
	return p
}
