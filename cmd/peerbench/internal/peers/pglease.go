package peers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease"
)

// Schemas of the two ways to keep leases.
const (
	HistorySchema = "with_history"
	PlainSchema   = "without_history"
)

var pgleaseFacts = Facts{
	Fence:    "grows with each grant, also across failover and restore; the resource checks it, in its own transaction where it is in the same database",
	Order:    "in the order in which they came; the release grants to the next in its own commit",
	Wakes:    "told: a notification, and a poll in case it is lost",
	Durable:  "a grant and a hand-over: yes, synced before it answers. A release of a lease with a minute or less is not waited for: the TTL would end what a crash brought back",
	Renews:   "up to 500 leases in one statement",
	Lacks:    "no consensus: the leases are as available as the Postgres",
	InOrder:  true,
	Packages: "github.com/pglease/pglease",
}

func pgleaseHistory() Peer {
	return Peer{
		Name: "pglease", Title: "pglease", Server: servers.Postgres, Facts: pgleaseFacts,
		Prepare: prepareLeases(HistorySchema, true), Open: openLeases(pglease.Config{Schema: HistorySchema}), Renew: renewLeases(HistorySchema),
	}
}

// pgleaseDirect differs from the default in how a waiter is woken, so only its hand-overs are measured.
func pgleaseDirect() Peer {
	facts := pgleaseFacts
	facts.Wakes = "told: for a second after it was served its session waits in the server, and is woken there alone; else as by default"
	facts.Lacks += "; a session that waits in the server shows as active and keeps a snapshot, for up to a second at a time"
	return Peer{
		Name: "pglease-directwake", Title: "pglease, direct wake", Server: servers.Postgres, Facts: facts, OnlyHandOvers: true,
		Prepare: prepareLeases(HistorySchema, true), Open: openLeases(pglease.Config{Schema: HistorySchema, DirectWake: true}),
	}
}

func pgleasePlain() Peer {
	facts := pgleaseFacts
	facts.Lacks += "; ended tenures are not recorded, and a late repeat of an acquire is known only until the next grant"
	return Peer{
		Name: "pglease-nohistory", Title: "pglease, history off", Server: servers.Postgres, Facts: facts,
		Prepare: prepareLeases(PlainSchema, false), Open: openLeases(pglease.Config{Schema: PlainSchema}), Renew: renewLeases(PlainSchema),
	}
}

func prepareLeases(schema string, history bool) func(context.Context, string) error {
	return func(ctx context.Context, address string) error {
		pool, err := pgxpool.New(ctx, address)
		if err != nil {
			return err
		}
		defer pool.Close()
		m, err := migrations.New(schema)
		if err != nil {
			return err
		}
		if _, err := m.Up(ctx, pool, migrations.Lease); err != nil {
			return err
		}
		_, err = pool.Exec(ctx, "UPDATE "+schema+".installation SET history = $1", history)
		return err
	}
}

// Pool returns one with so many connections, whose statements the tracer sees.
func Pool(ctx context.Context, url string, conns int, tracer pgx.QueryTracer) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.ConnConfig.Tracer = int32(conns), tracer
	return pgxpool.NewWithConfig(ctx, config)
}

// openLeases has clients with the given configuration and the TTL of the options.
func openLeases(config pglease.Config) func(context.Context, Options) (Crowd, error) {
	return func(ctx context.Context, o Options) (Crowd, error) {
		var ends closers
		clients, conns := 1, o.N
		if o.Apart {
			clients, conns = o.N, 2
		}
		config := config
		config.TTL = o.TTL
		crowd := Crowd{Sessions: make([]Session, o.N)}
		for i := range clients {
			client, end, err := leaseClient(ctx, o, conns, config)
			if err != nil {
				ends.close()
				return Crowd{}, err
			}
			ends.add(end)
			crowd.Sessions[i] = leases{client}
		}
		for i := range crowd.Sessions {
			crowd.Sessions[i] = crowd.Sessions[i%clients]
		}
		crowd.Close = ends.close
		return crowd, nil
	}
}

// leaseClient returns a client with a pool of its own.
func leaseClient(ctx context.Context, o Options, conns int, config pglease.Config) (*pglease.Client, func(), error) {
	pool, err := Pool(ctx, o.Address, conns, o.Count)
	if err != nil {
		return nil, nil, err
	}
	client, err := pglease.New(ctx, pool, config)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return client, func() { closeClient(ctx, client); pool.Close() }, nil
}

const closeTime = 10 * time.Second

func closeClient(ctx context.Context, client *pglease.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	_ = client.Close(ctx) // what was not released ends with the server
}

type leases struct{ client *pglease.Client }

// Acquire implements Session.
func (s leases) Acquire(ctx context.Context, key string, wait bool) (func(context.Context) error, error) {
	acquire := s.client.TryAcquire
	if wait {
		acquire = s.client.Acquire
	}
	lease, err := acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

// acquirers is how many acquire leases at the same time where many are wanted.
const acquirers = 16

// AcquireMany acquires n resources whose names begin with the prefix.
func AcquireMany(ctx context.Context, client *pglease.Client, prefix string, n int) error {
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	failed := make(chan error, acquirers)
	for range acquirers {
		go func() {
			for i := range next {
				if _, err := client.TryAcquire(ctx, fmt.Sprintf("%s/%d", prefix, i)); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	var err error
	for range acquirers {
		err = errors.Join(err, <-failed)
	}
	return err
}
