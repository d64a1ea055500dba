package contest

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
)

// notify is the least that waiting in line costs on Postgres where the waiters are told: sessions that listen,
// each to a channel of its own, pass a token on by NOTIFY, and keep nothing. Before version 19 each NOTIFY wakes
// all sessions of the database that listen, whatever they listen to.
func notify(ctx context.Context, address string, sessions int) measure.Load {
	ring := &ring{address: address, conns: make([]*pgx.Conn, sessions)}
	count := &measure.Counter{}
	return measure.Load{
		Name: "notify", Fill: ring.open, Spent: count.Count,
		Drop: func() { ring.close(context.WithoutCancel(ctx)) },
		Run: measure.Closed(1, func(ctx context.Context, _ int) (int, error) {
			count.Add(1)
			return 1, ring.pass(ctx)
		}),
	}
}

// ring is sessions that tell each other, one after another.
type ring struct {
	address string
	conns   []*pgx.Conn
	at      int // who has the token
}

func (r *ring) open(ctx context.Context) error {
	config, err := pgx.ParseConfig(r.address)
	if err != nil {
		return err
	}
	config.RuntimeParams["synchronous_commit"] = "off" // there is nothing to be kept
	for i := range r.conns {
		if r.conns[i], err = pgx.ConnectConfig(ctx, config); err == nil {
			_, err = r.conns[i].Exec(ctx, "LISTEN "+r.channel(i))
		}
		if err != nil {
			r.close(context.WithoutCancel(ctx))
			return err
		}
	}
	return nil
}

func (r *ring) channel(i int) string { return fmt.Sprintf("ring_%d", i) }

func (r *ring) pass(ctx context.Context) error {
	next := (r.at + 1) % len(r.conns)
	if _, err := r.conns[r.at].Exec(ctx, "SELECT pg_notify($1, '')", r.channel(next)); err != nil {
		return err
	}
	r.at = next
	_, err := r.conns[next].WaitForNotification(ctx)
	return err
}

func (r *ring) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for i, conn := range r.conns {
		if conn != nil {
			_ = conn.Close(ctx)
			r.conns[i] = nil
		}
	}
}
