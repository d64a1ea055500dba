package peers

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
)

// riverLeaderTTL is what River gives its leader: five seconds to renew and ten beside.
const riverLeaderTTL = 15 * time.Second

func riverPeer() Peer {
	return Peer{
		Name: "river", Title: "River leader", Server: servers.Postgres,
		Facts: Facts{
			Fence:    "none",
			Order:    "none: whoever asks first",
			Wakes:    "told of a leader that resigns; polls every 5 s for one that died",
			Durable:  "no: the leader's table is UNLOGGED; jobs are durable",
			Renews:   "the one leader",
			Lacks:    "one leader of the River schema, for River's own upkeep: a program cannot take it, so only its takeover is measured; its TTL is fixed at 15 s",
			Packages: "github.com/riverqueue/river, riverdriver/riverpgxv5",
		},
		Prepare: PrepareRiver, Leader: openRiver, LeaderTTL: riverLeaderTTL,
	}
}

// PrepareRiver makes River's tables.
func PrepareRiver(ctx context.Context, address string) error {
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return err
	}
	defer pool.Close()
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// openRiver returns sessions that become the leader, each a client of its own.
func openRiver(ctx context.Context, o Options) (Crowd, error) {
	var ends closers
	crowd := Crowd{}
	for range o.N {
		pool, err := Pool(ctx, o.Address, 4, o.Count)
		if err != nil {
			ends.close()
			return Crowd{}, err
		}
		ends.add(pool.Close)
		client, err := RiverClient(pool, &river.Config{
			Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
		}, nil)
		if err != nil {
			ends.close()
			return Crowd{}, err
		}
		crowd.Sessions = append(crowd.Sessions, riverSession{pool, client})
	}
	crowd.Close = ends.close
	return crowd, nil
}

type riverSession struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

// Acquire implements Session: it starts the client and waits until the table names it.
func (s riverSession) Acquire(ctx context.Context, _ string, _ bool) (func(context.Context) error, error) {
	if err := s.client.Start(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var leader string
		err := s.pool.QueryRow(ctx, "SELECT leader_id FROM river_leader").Scan(&leader)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, err
		}
		if leader == s.client.ID() {
			return s.client.StopAndCancel, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), s.client.StopAndCancel(context.WithoutCancel(ctx)))
		}
	}
}

// RiverJob is a job that is done as soon as it is begun.
type RiverJob struct{}

// Kind implements river.JobArgs.
func (RiverJob) Kind() string { return "peerbench" }

type riverWorker struct {
	river.WorkerDefaults[RiverJob]

	done func()
}

// Work implements river.Worker.
func (w *riverWorker) Work(context.Context, *river.Job[RiverJob]) error {
	w.done()
	return nil
}

// RiverClient returns a client that works on RiverJob and says nothing. done is called for each job;
// it may be nil.
func RiverClient(pool *pgxpool.Pool, config *river.Config, done func()) (*river.Client[pgx.Tx], error) {
	if done == nil {
		done = func() {}
	}
	config.Workers = river.NewWorkers()
	config.Logger = slog.New(slog.DiscardHandler)
	if err := river.AddWorkerSafely(config.Workers, &riverWorker{done: done}); err != nil {
		return nil, err
	}
	return river.NewClient(riverpgxv5.New(pool), config)
}
