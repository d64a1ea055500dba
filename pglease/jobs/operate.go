package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

// Info is what the table says of a job.
type Info struct {
	ID          int64
	Queue       string
	State       State
	Priority    int
	RunAt       time.Time
	Attempt     int
	MaxAttempts int
	Fence       int64  // of the last claim; 0 where there was none
	Worker      string // of the last claim
	Partition   string
	UniqueKey   string // empty where it has none, or has given it up
	CreatedAt   time.Time
	FinishedAt  time.Time // zero while the job is not over
	LastError   string
	Payload     []byte
}

// Job reads one job. The error matches ErrGone where there is none, or no more.
func (c *Client) Job(ctx context.Context, id int64) (Info, error) {
	row, err := c.queries.Job(ctx, c.schema.On(c.pool), id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrGone
	}
	if err != nil {
		return Info{}, wrap("read", "", id, err)
	}
	return info(row), nil
}

// Parked lists up to n parked jobs of a queue, by id, from after an id on.
func (c *Client) Parked(ctx context.Context, queue string, after int64, n int) ([]Info, error) {
	if err := checkQueue(queue); err != nil {
		return nil, wrap("list", "", 0, err)
	}
	if n < 1 || n > MaxBatch {
		return nil, wrap("list", queue, 0, invalid("%d jobs in one call, not between 1 and %d", n, MaxBatch))
	}
	rows, err := c.queries.Parked(ctx, c.schema.On(c.pool), jobsdb.ParkedParams{Queue: queue, After: after, MaxRows: int32(n)})
	if err != nil {
		return nil, wrap("list", queue, 0, err)
	}
	list := make([]Info, len(rows))
	for i, row := range rows {
		list[i] = info(jobsdb.JobRow(row))
	}
	return list, nil
}

func info(row jobsdb.JobRow) Info {
	i := Info{
		ID: row.ID, Queue: row.Queue, State: State(row.State), Priority: int(row.Priority), RunAt: row.RunAt,
		Attempt: int(row.Attempt), MaxAttempts: int(row.MaxAttempts), Fence: row.Fence, Worker: row.WorkerID,
		Partition: row.PartitionKey, UniqueKey: row.UniqueKey, CreatedAt: row.CreatedAt, LastError: row.LastError, Payload: row.Payload,
	}
	if row.FinishedAt != nil {
		i.FinishedAt = *row.FinishedAt
	}
	return i
}

// Counts are the numbers of jobs of a queue that are not over.
type Counts struct{ Ready, Waiting, Running, Parked int64 }

// Count counts the jobs of a queue. It takes as long as there are jobs that are not over.
func (c *Client) Count(ctx context.Context, queue string) (Counts, error) {
	if err := checkQueue(queue); err != nil {
		return Counts{}, wrap("count", "", 0, err)
	}
	row, err := c.queries.Count(ctx, c.schema.On(c.pool), queue)
	return Counts(row), wrap("count", queue, 0, err)
}

// Retry makes parked jobs ready at once, with all their attempts before them. For each job that is
// not parked the error holds a *StateError, or matches ErrGone; the others are ready.
func (c *Client) Retry(ctx context.Context, ids ...int64) error {
	return wrap("retry", "", 0, c.move(ctx, ids, "parked", c.queries.Retry))
}

// Drop ends jobs that are ready, waiting or parked; a job that is running has to end first. The
// partition goes on with its next job. For each job that is in another state the error holds a
// *StateError, or matches ErrGone; the others are dropped.
func (c *Client) Drop(ctx context.Context, ids ...int64) error {
	return wrap("drop", "", 0, c.move(ctx, ids, "ready, waiting or parked", c.queries.Drop))
}

func (c *Client) move(ctx context.Context, ids []int64, want string,
	step func(context.Context, jobsdb.DBTX, []int64) ([]int64, error),
) error {
	switch {
	case len(ids) == 0:
		return nil
	case len(ids) > MaxBatch:
		return invalid("%d jobs in one call, the limit is %d", len(ids), MaxBatch)
	}
	return c.alone(ctx, func(db jobsdb.DBTX) error {
		done, err := step(ctx, db, ids)
		if err != nil || len(done) == len(ids) {
			return err
		}
		left := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(done, id) })
		rows, err := c.queries.ClaimStates(ctx, db, left)
		if err != nil {
			return err
		}
		var problems []error
		for _, row := range rows {
			if row.State == "" {
				problems = append(problems, fmt.Errorf("job %d: %w", row.ID, ErrGone))
				continue
			}
			problems = append(problems, &StateError{ID: "job " + strconv.FormatInt(row.ID, 10), Want: want, Actual: row.State})
		}
		return errors.Join(problems...)
	})
}
