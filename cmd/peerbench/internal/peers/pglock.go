package peers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
)

func pglockPeer() Peer {
	return Peer{
		Name: "pglock", Title: "cirello pglock", Server: servers.Postgres,
		Facts: Facts{
			Fence:    "a number from a sequence, which a heartbeat changes too; nobody checks it",
			Order:    "none: whoever asks first after the release",
			Wakes:    "polls, once in the lease's duration (20 s by default, here 2 s)",
			Durable:  "yes, synced before it answers",
			Renews:   "one lock, in two statements, by a goroutine a lock",
			Lacks:    "no order; each attempt writes, also a refused one; a release deletes the row",
			Packages: "cirello.io/pglock, over pgx",
		},
		Prepare: preparePglock, Open: openPglock, Renew: renewPglock, LooksByTTL: true,
	}
}

func pglockDB(address string, conns int, count *measure.Counter) (*sql.DB, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	if count != nil {
		config.Tracer = count
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

func preparePglock(_ context.Context, address string) error {
	db, err := pglockDB(address, 1, nil)
	if err != nil {
		return err
	}
	client, err := pglock.UnsafeNew(db)
	if err == nil {
		err = client.TryCreateTable()
	}
	return errors.Join(err, db.Close())
}

func openPglock(_ context.Context, o Options) (Crowd, error) {
	var ends closers
	clients, conns := 1, o.N
	if o.Apart {
		clients, conns = o.N, 2
	}
	crowd := Crowd{Sessions: make([]Session, o.N)}
	for i := range clients {
		client, end, err := pglockClient(o, conns)
		if err != nil {
			ends.close()
			return Crowd{}, err
		}
		ends.add(end)
		crowd.Sessions[i] = pglockSession{client}
	}
	for i := range crowd.Sessions {
		crowd.Sessions[i] = crowd.Sessions[i%clients]
	}
	crowd.Close = ends.close
	return crowd, nil
}

func pglockClient(o Options, conns int) (*pglock.Client, func(), error) {
	db, err := pglockDB(o.Address, conns, o.Count)
	if err != nil {
		return nil, nil, err
	}
	client, err := pglock.UnsafeNew(db, pglock.WithLeaseDuration(o.TTL), pglock.WithHeartbeatFrequency(o.TTL/3))
	if err != nil {
		return nil, nil, err
	}
	return client, func() { _ = db.Close() }, nil
}

type pglockSession struct{ client *pglock.Client }

// Acquire implements Session.
func (s pglockSession) Acquire(ctx context.Context, key string, wait bool) (func(context.Context) error, error) {
	// The heartbeats must outlive the call, and the wait end with it.
	heartbeat := pglock.WithCustomHeartbeatContext(context.WithoutCancel(ctx))
	var lock *pglock.Lock
	err := pglock.ErrNotAcquired
	if !wait {
		lock, err = s.client.AcquireContext(ctx, key, heartbeat, pglock.FailIfLocked())
	}
	if errors.Is(err, pglock.ErrNotAcquired) { // also where a late heartbeat has undone a release: wait for it to expire
		lock, err = s.client.AcquireContext(ctx, key, heartbeat)
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		err := s.client.ReleaseContext(ctx, lock)
		if errors.Is(err, pglock.ErrLockAlreadyReleased) {
			return nil // a heartbeat that came late changed its number, or another has it: it is over
		}
		return err
	}, nil
}

func renewPglock(ctx context.Context, o Options) (Renewals, error) {
	db, err := pglockDB(o.Address, 1, o.Count)
	if err != nil {
		return Renewals{}, err
	}
	end := func() { _ = db.Close() }
	// Without a frequency no goroutine of its own renews beside us.
	client, err := pglock.UnsafeNew(db, pglock.WithLeaseDuration(renewTTL), pglock.WithHeartbeatFrequency(0))
	if err != nil {
		end()
		return Renewals{}, err
	}
	locks := make([]*pglock.Lock, o.N)
	for i := range locks {
		if locks[i], err = client.AcquireContext(ctx, fmt.Sprintf("renew/%d", i), pglock.FailIfLocked()); err != nil {
			end()
			return Renewals{}, err
		}
	}
	next := 0
	return Renewals{Load: measure.Load{Run: measure.Closed(1, func(ctx context.Context, _ int) (int, error) {
		lock := locks[next%len(locks)]
		next++
		return 1, client.SendHeartbeat(ctx, lock)
	}), Spent: o.Count.Count}, Close: end}, nil
}
