package profile

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
	"github.com/pglease/pglease/pglease"
)

// A client that renews has a short interval, so that leases are due again soon after a statement.
const (
	renewTTL   = 30 * time.Second
	renewEvery = renewTTL / 1000
	fullBatch  = 500 // leases that the client renews in one statement
	connectors = 8   // connections that acquire many leases
)

// renewals lets a client's keeper send one statement after another, with one lease and with as many as it can have.
// Renewals come after a pause, in which others have the processor's caches; so an UPDATE after one is beside them.
func (s *stage) renewals(ctx context.Context) ([]load, error) {
	t, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	one := s.row("renew", "renew-1", "Renew, one lease in a statement")
	all := s.row("renew", "renew-500", fmt.Sprintf("Renew, %d leases in a statement", fullBatch))
	paused := s.row("renew", "update-paused", "UPDATE of a row by its key, after as long a pause")
	single := s.renewing(one, 1, 1)
	renew := single.cycle
	single.cycle = func(ctx context.Context) error {
		if err := renew(ctx); err != nil {
			return err
		}
		return s.meter.times(ctx, paused, t.pid, 1, func(int) error { return execute(ctx, t.Pool, updateRow, many) })
	}
	return []load{single, s.renewing(all, 2*fullBatch, fullBatch)}, nil
}

// renewing has a client in each turn that keeps some leases, of which a statement renews so many.
func (s *stage) renewing(row string, leases, batch int) load {
	var k *keeper
	turns := 0
	return load{
		begin: func(ctx context.Context) (err error) {
			turns++
			if k, err = s.keeper(ctx, fmt.Sprintf("%s/%d", row, turns), leases); err != nil {
				return err
			}
			for range planned { // the connection is new: its statements are planned for good
				if _, err = k.pass(ctx); err != nil {
					break
				}
			}
			return err
		},
		// Of more leases than a statement renews, those that it was held up with are few; when it is through, all
		// others are due.
		cycle: func(ctx context.Context) error {
			if err := k.pause(ctx); err != nil {
				return err
			}
			if leases > batch {
				if _, err := k.pass(ctx); err != nil {
					return err
				}
			}
			pid, err := k.waits(ctx)
			if err != nil {
				return err
			}
			return s.meter.measure(ctx, func() (int, error) {
				n, err := k.pass(ctx)
				if err == nil && n != batch {
					err = fmt.Errorf("a statement renewed %d leases, not %d", n, batch)
				}
				return 1, err
			}, false, share{row, []uint32{pid}})
		},
		end: func() {
			if k != nil {
				k.end()
			}
		},
	}
}

// planned is how often a statement runs before Postgres has chosen a plan for good.
const planned = 8

// A keeper is a client's: its renewals wait until they are let through, one by one.
type keeper struct {
	at   chan uint32   // the server's process of a renewal that waits
	open chan struct{} // lets it go
	done chan int      // how many leases it has renewed
	over chan struct{} // closed when all may go
	end  func()
	pid  uint32 // of the one that waits, where that was asked
}

func (s *stage) keeper(ctx context.Context, prefix string, leases int) (*keeper, error) {
	k := &keeper{at: make(chan uint32), open: make(chan struct{}), done: make(chan int), over: make(chan struct{})}
	pool, err := peers.Pool(ctx, s.address, connectors, k)
	if err != nil {
		return nil, err
	}
	config := pglease.Config{Schema: peers.HistorySchema, TTL: renewTTL, RenewEvery: renewEvery, RequestTimeout: renewTTL}
	client, err := pglease.New(ctx, pool, config)
	if err != nil {
		pool.Close()
		return nil, err
	}
	k.end = func() { close(k.over); closeNow(ctx, client); pool.Close() }
	if err := peers.AcquireMany(ctx, client, prefix, leases); err != nil {
		k.end()
		return nil, err
	}
	return k, nil
}

// pause is until each lease that was renewed before is due again.
func (k *keeper) pause(ctx context.Context) error {
	select {
	case <-time.After(renewEvery * 5 / 4):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// waits returns when a renewal waits, and the process that will run it.
func (k *keeper) waits(ctx context.Context) (uint32, error) {
	if k.pid == 0 {
		select {
		case k.pid = <-k.at:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return k.pid, nil
}

// pass lets one renewal through, and returns how many leases it has renewed.
func (k *keeper) pass(ctx context.Context) (int, error) {
	if _, err := k.waits(ctx); err != nil {
		return 0, err
	}
	k.pid = 0
	k.open <- struct{}{}
	select {
	case n := <-k.done:
		return n, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

type passKey struct{}

// TraceQueryStart implements pgx.QueryTracer. A client has one renewal under way at a time.
func (k *keeper) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !strings.Contains(data.SQL, "-- name: Renew ") {
		return ctx
	}
	select {
	case k.at <- conn.PgConn().PID():
	case <-k.over:
		return ctx
	}
	select {
	case <-k.open:
	case <-k.over:
	}
	return context.WithValue(ctx, passKey{}, true)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (k *keeper) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if ctx.Value(passKey{}) == nil {
		return
	}
	select {
	case k.done <- int(data.CommandTag.RowsAffected()):
	case <-k.over:
	}
}
