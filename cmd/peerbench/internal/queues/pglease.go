package queues

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/jobs"
)

const (
	schema = "jobs"
	batch  = 100
)

func ours() []Queue {
	return []Queue{
		{"pglease", "pglease/jobs, Claim and Complete, one at a time", claims(1)},
		{"pglease", fmt.Sprintf("pglease/jobs, Claim and Complete, %d at a time", batch), claims(batch)},
		{"pglease", "pglease/jobs, CompleteAndClaim, one at a time", chained},
		{"pglease", "pglease/jobs, Run, its defaults", worker},
	}
}

// open makes the tables and returns a client, and the stock of a queue.
func open(ctx context.Context, url, queue string, count *measure.Counter) (*pgxpool.Pool, *jobs.Client, *stock, error) {
	pool, err := peers.Pool(ctx, url, Workers+2, count)
	if err != nil {
		return nil, nil, nil, err
	}
	m, err := migrations.New(schema)
	if err == nil {
		_, err = m.Up(ctx, pool, migrations.Jobs)
	}
	var client *jobs.Client
	if err == nil {
		client, err = jobs.New(pool, jobs.Config{Schema: schema})
	}
	if err != nil {
		pool.Close()
		return nil, nil, nil, err
	}
	list := make([]jobs.Job, jobs.MaxBatch)
	for i := range list {
		list[i] = jobs.Job{Queue: queue, Payload: []byte(`{}`)}
	}
	return pool, client, &stock{add: func(ctx context.Context) (int, error) {
		_, err := client.Enqueue(ctx, list...)
		return len(list), err
	}}, nil
}

func claims(size int) func(context.Context, string) (measure.Load, func(), error) {
	return func(ctx context.Context, url string) (measure.Load, func(), error) {
		count := &measure.Counter{}
		queue := fmt.Sprintf("claims-%d", size)
		pool, client, s, err := open(ctx, url, queue, count)
		if err != nil {
			return measure.Load{}, nil, err
		}
		run := s.closed(func(ctx context.Context) (int, error) {
			claimed, err := client.Claim(ctx, queue, size)
			if err != nil || len(claimed) == 0 {
				return 0, err
			}
			return len(claimed), client.Complete(ctx, claimed...)
		})
		return measure.Load{Fill: s.fill, Run: run, Spent: count.Count}, pool.Close, nil
	}
}

// chained ends a claim and takes the next one in one commit, as a worker process does.
func chained(ctx context.Context, url string) (measure.Load, func(), error) {
	count := &measure.Counter{}
	const queue = "chained"
	pool, client, s, err := open(ctx, url, queue, count)
	if err != nil {
		return measure.Load{}, nil, err
	}
	held := make(chan *jobs.Claim, Workers) // from one operation to the next
	run := s.closed(func(ctx context.Context) (int, error) {
		var claim *jobs.Claim
		select {
		case claim = <-held:
		default:
			first, err := client.Claim(ctx, queue, 1)
			if err != nil || len(first) == 0 {
				return 0, err
			}
			claim = first[0]
		}
		next, err := client.CompleteAndClaim(ctx, claim, 1)
		for _, claim := range next {
			held <- claim
		}
		return 1, err
	})
	drop := func() {
		for range len(held) {
			_ = client.Complete(context.WithoutCancel(ctx), <-held) // else it goes with the server
		}
	}
	return measure.Load{Fill: s.fill, Run: run, Drop: drop, Spent: count.Count}, pool.Close, nil
}

// worker is a worker process with as many jobs at a time as there are workers.
func worker(ctx context.Context, url string) (measure.Load, func(), error) {
	count := &measure.Counter{}
	const queue = "worker"
	pool, _, s, err := open(ctx, url, queue, count)
	if err != nil {
		return measure.Load{}, nil, err
	}
	run := func(ctx context.Context, d time.Duration) (measure.Sample, error) {
		return s.window(ctx, d, func(done func()) (func() error, error) {
			ctx, cancel := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() {
				config := jobs.Config{Schema: schema, Queue: queue, Concurrency: Workers}
				ended <- jobs.Run(ctx, pool, config, func(context.Context, *jobs.Claim) error { done(); return nil })
			}()
			return func() error { cancel(); return <-ended }, nil
		})
	}
	return measure.Load{Fill: s.fill, Run: run, Spent: count.Count}, pool.Close, nil
}
