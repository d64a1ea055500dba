package bench

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
)

var renew = Work{
	Name:    "renew",
	Summary: "renew the leases of one client; p50 and p99 are of a whole statement",
	unit:    "renewed lease",
	limit:   "one statement a lease",
	prepare: prepareRenew,
}

// One lease in one statement, as a client without a keeper would send it.
const renewOne = `UPDATE %s.resource_lease SET expires_at = greatest(expires_at, clock_timestamp() + ttl)
WHERE resource_id = $1 AND lease_id = $2 AND ended_at IS NULL AND expires_at > clock_timestamp()
RETURNING expires_at - clock_timestamp()`

// acquirers is how many acquire the leases at the start, which is not measured.
const acquirers = 16

func prepareRenew(ctx context.Context, s *stage) (loads, error) {
	k := &keeperWatch{counter: &s.counter}
	pool, err := s.pool(ctx, acquirers, k)
	if err != nil {
		return loads{}, err
	}
	// Every lease is due about once a round, the time of the limit included.
	every := max(s.options.For*5/2, 50*time.Millisecond)
	ttl := max(30*time.Second, 4*every)
	client, err := s.client(ctx, pool, pglease.Config{TTL: ttl, RenewEvery: every, RequestTimeout: ttl})
	if err != nil {
		return loads{}, err
	}
	tokens, err := acquireAll(ctx, client, s.options.Leases)
	if err != nil {
		return loads{}, err
	}
	single, err := s.singly(ctx, tokens)
	return loads{ours: load{run: k.renewals}, limit: load{run: k.beside(single)}}, err
}

func acquireAll(ctx context.Context, client *pglease.Client, n int) ([]fence.Token, error) {
	tokens := make([]fence.Token, n)
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	errs := make(chan error, acquirers)
	for range acquirers {
		go func() {
			var err error
			for i := range next {
				var lease *pglease.Lease
				if lease, err = client.TryAcquire(ctx, resource(i)); err != nil {
					break
				}
				tokens[i] = lease.Token()
			}
			errs <- err
		}()
	}
	var err error
	for range acquirers {
		if failed := <-errs; failed != nil {
			err = failed
		}
	}
	return tokens, err
}

// singly renews the same leases on one connection, one after another.
func (s *stage) singly(ctx context.Context, tokens []fence.Token) (runner, error) {
	conns, err := s.connections(ctx, 1)
	if err != nil {
		return nil, err
	}
	sql, next := s.sql(renewOne), 0
	return closed(1, func(ctx context.Context, _ int) error {
		token := tokens[next%len(tokens)]
		next++
		var left time.Duration
		return conns[0].QueryRow(ctx, sql, token.Resource(), [16]byte(token.LeaseID())).Scan(&left)
	}), nil
}

// keeperWatch times the client's renewals, and keeps them waiting while the limit runs.
type keeperWatch struct {
	*counter
	turn sync.Mutex // held by a renewal under way, and by the limit

	mu    sync.Mutex
	began time.Time
	done  sample
}

type renewalKey struct{}

// TraceQueryStart implements pgx.QueryTracer. A client has one renewal under way at a time.
func (k *keeperWatch) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !strings.Contains(data.SQL, "-- name: Renew ") {
		return k.counter.TraceQueryStart(ctx, conn, data)
	}
	k.turn.Lock()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.began = time.Now()
	return context.WithValue(k.counter.TraceQueryStart(ctx, conn, data), renewalKey{}, true)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (k *keeperWatch) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if ctx.Value(renewalKey{}) == nil {
		return
	}
	k.mu.Lock()
	took := time.Since(k.began)
	k.done.ops += int(data.CommandTag.RowsAffected())
	k.done.elapsed += took
	k.done.latencies = append(k.done.latencies, took)
	k.mu.Unlock()
	k.turn.Unlock()
}

// take returns what was done since the last time.
func (k *keeperWatch) take() sample {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.done
	k.done = sample{}
	return s
}

// renewals lets the keeper work for d, and longer if it had nothing to do. The time that counts is
// that of its statements: between them it waits for leases to become due.
func (k *keeperWatch) renewals(ctx context.Context, d time.Duration) (sample, error) {
	k.take()
	var all sample
	for tick := min(d, 10*time.Millisecond); d > 0 || all.ops == 0; d -= tick {
		select {
		case <-time.After(tick):
		case <-ctx.Done():
			return all, context.Cause(ctx)
		}
		s := k.take()
		all.ops, all.timed, all.elapsed, all.latencies = all.ops+s.ops, all.timed+s.ops, all.elapsed+s.elapsed, append(all.latencies, s.latencies...)
	}
	return all, nil
}

// beside runs the limit while no renewal is under way.
func (k *keeperWatch) beside(limit runner) runner {
	return func(ctx context.Context, d time.Duration) (sample, error) {
		k.turn.Lock()
		defer k.turn.Unlock()
		return limit(ctx, d)
	}
}
