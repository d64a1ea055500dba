package queues

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
)

// manyWorkers is what River's own introduction has.
const manyWorkers = 100

func rivers() []Queue {
	return []Queue{
		{"river", "River, its driver's statements, one at a time", riverStatements},
		{"river", fmt.Sprintf("River, its defaults, %d workers", Workers), riverWorkers(Workers, 0)},
		{"river", fmt.Sprintf("River, its defaults, %d workers", manyWorkers), riverWorkers(manyWorkers, 0)},
		{"river", fmt.Sprintf("River, FetchCooldown at its least, %d workers", Workers), riverWorkers(Workers, river.FetchCooldownMin)},
	}
}

// openRiver returns a pool, and the stock of a queue.
func openRiver(ctx context.Context, url, queue string, count *measure.Counter) (*pgxpool.Pool, *stock, error) {
	pool, err := peers.Pool(ctx, url, Workers+2, count)
	if err != nil {
		return nil, nil, err
	}
	var client *river.Client[pgx.Tx]
	if client, err = peers.RiverClient(pool, &river.Config{}, nil); err != nil {
		pool.Close()
		return nil, nil, err
	}
	const each = 1000
	list := make([]river.InsertManyParams, each)
	for i := range list {
		list[i] = river.InsertManyParams{Args: peers.RiverJob{}, InsertOpts: &river.InsertOpts{Queue: queue}}
	}
	return pool, &stock{add: func(ctx context.Context) (int, error) { return client.InsertManyFast(ctx, list) }}, nil
}

// riverStatements calls what River's own client calls, one job at a time. A program would not: the
// driver's interface is River's own.
func riverStatements(ctx context.Context, url string) (measure.Load, func(), error) {
	count := &measure.Counter{}
	const queue = "statements"
	pool, s, err := openRiver(ctx, url, queue, count)
	if err != nil {
		return measure.Load{}, nil, err
	}
	executor := riverpgxv5.New(pool).GetExecutor()
	run := s.closed(func(ctx context.Context) (int, error) {
		got, err := executor.JobGetAvailable(ctx, &riverdriver.JobGetAvailableParams{
			ClientID: "peerbench", MaxAttemptedBy: 100, MaxToLock: 1, Queue: queue,
		})
		if err != nil || len(got.Jobs) == 0 {
			return 0, err
		}
		now := time.Now()
		_, err = executor.JobSetStateIfRunningMany(ctx, &riverdriver.JobSetStateIfRunningManyParams{
			ID: []int64{got.Jobs[0].ID}, Attempt: []*int{nil}, ErrData: [][]byte{nil}, FinalizedAt: []*time.Time{&now},
			MetadataDoMerge: []bool{false}, MetadataUpdates: [][]byte{nil}, ScheduledAt: []*time.Time{nil},
			State: []rivertype.JobState{rivertype.JobStateCompleted},
		})
		return 1, err
	})
	return measure.Load{Fill: s.fill, Run: run, Spent: count.Count}, pool.Close, nil
}

// riverWorkers is a River client. A job counts when its work is done; River writes that down in
// batches, a little later.
func riverWorkers(workers int, cooldown time.Duration) func(context.Context, string) (measure.Load, func(), error) {
	return func(ctx context.Context, url string) (measure.Load, func(), error) {
		count := &measure.Counter{}
		queue := fmt.Sprintf("workers-%d-%d", workers, cooldown.Milliseconds())
		pool, s, err := openRiver(ctx, url, queue, count)
		if err != nil {
			return measure.Load{}, nil, err
		}
		run := func(ctx context.Context, d time.Duration) (measure.Sample, error) {
			return s.window(ctx, d, func(done func()) (func() error, error) {
				client, err := peers.RiverClient(pool, &river.Config{
					FetchCooldown: cooldown, Queues: map[string]river.QueueConfig{queue: {MaxWorkers: workers}},
				}, done)
				if err != nil {
					return nil, err
				}
				if err := client.Start(ctx); err != nil {
					return nil, err
				}
				return func() error { return client.Stop(context.WithoutCancel(ctx)) }, nil
			})
		}
		return measure.Load{Fill: s.fill, Run: run, Spent: count.Count}, pool.Close, nil
	}
}
