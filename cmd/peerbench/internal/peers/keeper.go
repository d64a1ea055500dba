package peers

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/pglease"
)

// Leases are renewed as often as a client may, and live long enough to wait for their turn while
// others are measured.
const (
	renewTTL   = 2 * time.Minute
	renewEvery = renewTTL / 1000
)

func renewLeases(schema string) func(context.Context, Options) (Renewals, error) {
	return func(ctx context.Context, o Options) (Renewals, error) { return RenewLeases(ctx, o, schema) }
}

// RenewLeases has a client that keeps N leases, and times the statements in which it renews them.
// They wait while others are measured.
func RenewLeases(ctx context.Context, o Options, schema string) (Renewals, error) {
	k := &keeperWatch{Counter: o.Count}
	pool, err := Pool(ctx, o.Address, acquirers, k)
	if err != nil {
		return Renewals{}, err
	}
	config := pglease.Config{Schema: schema, TTL: renewTTL, RenewEvery: renewEvery, RequestTimeout: renewTTL}
	client, err := pglease.New(ctx, pool, config)
	if err != nil {
		pool.Close()
		return Renewals{}, err
	}
	stop := func() { closeClient(ctx, client); pool.Close() }
	if err := AcquireMany(ctx, client, "renew", o.N); err != nil {
		stop()
		return Renewals{}, err
	}
	k.gate.Lock()
	return Renewals{
		Load:  measure.Load{Run: k.run, Spent: k.sent},
		Close: func() { k.gate.Unlock(); stop() },
	}, nil
}

// keeperWatch times a client's renewals.
type keeperWatch struct {
	*measure.Counter
	gate sync.Mutex // held by a renewal under way, and while others are measured

	mu         sync.Mutex
	began      time.Time
	done       measure.Sample
	statements int64
}

type renewalKey struct{}

// TraceQueryStart implements pgx.QueryTracer. A client has one renewal under way at a time.
func (k *keeperWatch) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !strings.Contains(data.SQL, "-- name: Renew ") {
		return k.Counter.TraceQueryStart(ctx, conn, data)
	}
	k.gate.Lock()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.statements++
	k.began = time.Now()
	return context.WithValue(k.Counter.TraceQueryStart(ctx, conn, data), renewalKey{}, true)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (k *keeperWatch) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if ctx.Value(renewalKey{}) == nil {
		return
	}
	k.mu.Lock()
	took := time.Since(k.began)
	k.done.Ops += int(data.CommandTag.RowsAffected())
	k.done.Elapsed += took
	k.done.Latencies = append(k.done.Latencies, took)
	k.mu.Unlock()
	k.gate.Unlock()
}

func (k *keeperWatch) sent() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.statements
}

func (k *keeperWatch) take() measure.Sample {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.done
	k.done = measure.Sample{}
	s.Timed = s.Ops
	return s
}

// run lets the client renew for d, and longer if it had nothing to do. The time that counts is that
// of its statements: between them it waits for leases to become due.
func (k *keeperWatch) run(ctx context.Context, d time.Duration) (measure.Sample, error) {
	k.take()
	k.gate.Unlock()
	defer k.gate.Lock()
	tick := time.NewTicker(min(d, 10*time.Millisecond))
	defer tick.Stop()
	var all measure.Sample
	for end := time.Now().Add(d); all.Ops == 0 || time.Now().Before(end); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return all, context.Cause(ctx)
		}
		s := k.take()
		all.Ops, all.Timed, all.Elapsed = all.Ops+s.Ops, all.Timed+s.Timed, all.Elapsed+s.Elapsed
		all.Latencies = append(all.Latencies, s.Latencies...)
	}
	return all, nil
}
