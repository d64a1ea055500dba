package peers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
)

func redsyncPeer() Peer {
	return Peer{
		Name: "redsync", Title: "redsync on one Redis", Server: servers.Redis,
		Facts: Facts{
			Fence:    "none",
			Order:    "none: whoever asks first after the release",
			Wakes:    "polls, every 50 to 250 ms",
			Durable:  "no: a crash of the server forgets all locks since its last snapshot",
			Renews:   "one lock; the program calls Extend itself",
			Lacks:    "nothing renews by itself; no order, no fence, nothing kept",
			Packages: "github.com/go-redsync/redsync/v4, github.com/redis/go-redis/v9",
		},
		Open: openRedsync, Renew: renewRedsync,
	}
}

func openRedsync(_ context.Context, o Options) (Crowd, error) {
	var ends closers
	clients, conns := 1, o.N
	if o.Apart {
		clients, conns = o.N, 1
	}
	crowd := Crowd{Sessions: make([]Session, o.N)}
	for i := range clients {
		client := redisClient(o, conns)
		ends.add(func() { _ = client.Close() })
		crowd.Sessions[i] = redsyncSession{redsync.New(goredis.NewPool(client)), o}
	}
	for i := range crowd.Sessions {
		crowd.Sessions[i] = crowd.Sessions[i%clients]
	}
	crowd.Close = ends.close
	return crowd, nil
}

func redisClient(o Options, conns int) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: o.Address, PoolSize: conns})
	client.AddHook(redisCount{o.Count})
	return client
}

type redsyncSession struct {
	rs      *redsync.Redsync
	options Options
}

// Acquire implements Session.
func (s redsyncSession) Acquire(ctx context.Context, key string, wait bool) (func(context.Context) error, error) {
	tries := 1
	if wait {
		tries = math.MaxInt32
	}
	mutex := s.rs.NewMutex("peerbench/"+key, redsync.WithExpiry(s.options.TTL), redsync.WithTries(tries))
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	if s.options.Hold {
		go extend(ctx, mutex, s.options.TTL/3)
	}
	return func(ctx context.Context) error {
		ok, err := mutex.UnlockContext(ctx)
		if err == nil && !ok {
			err = errors.New("redsync: the lock was not held")
		}
		return err
	}, nil
}

// extend keeps a lock until the context or the lock ends, as a program that uses redsync must.
func extend(ctx context.Context, mutex *redsync.Mutex, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if ok, err := mutex.ExtendContext(ctx); err != nil || !ok {
			return
		}
	}
}

func renewRedsync(ctx context.Context, o Options) (Renewals, error) {
	client := redisClient(o, 1)
	end := func() { _ = client.Close() }
	rs := redsync.New(goredis.NewPool(client))
	mutexes := make([]*redsync.Mutex, o.N)
	for i := range mutexes {
		mutexes[i] = rs.NewMutex(fmt.Sprintf("peerbench/renew/%d", i), redsync.WithExpiry(renewTTL), redsync.WithTries(1))
		if err := mutexes[i].LockContext(ctx); err != nil {
			end()
			return Renewals{}, err
		}
	}
	next := 0
	return Renewals{Load: measure.Load{Run: measure.Closed(1, func(ctx context.Context, _ int) (int, error) {
		mutex := mutexes[next%len(mutexes)]
		next++
		ok, err := mutex.ExtendContext(ctx)
		if err == nil && !ok {
			err = errors.New("redsync: the lock was not extended")
		}
		return 1, err
	}), Spent: o.Count.Count}, Close: end}, nil
}

// redisCount counts commands.
type redisCount struct{ count *measure.Counter }

// DialHook implements redis.Hook.
func (redisCount) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return next(ctx, network, address)
	}
}

// ProcessHook implements redis.Hook.
func (h redisCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.count.Add(1)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h redisCount) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.count.Add(len(cmds))
		return next(ctx, cmds)
	}
}
