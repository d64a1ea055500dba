package authority

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/pglease/internal/leasedb"
	"github.com/pglease/pglease/pglease/internal/ownsession"
)

// channel is the client's own: a notification wakes nobody else, whatever its schema. The payload
// is short, of fixed size, and tells a stranger nothing: a ticket in sixteen hexadecimal digits, and
// where the waiter was served the fence in sixteen more and the proof in 32.
func channel(client ID) string { return fmt.Sprintf("pglease_%x", client[:]) }

// Ring implements Line. It runs after the commit that it tells of, in a transaction of its own:
// notifying commits wait for each other, and those of leases must not. An asynchronous commit is
// enough for a hint. A session that is asleep hears it when it is roused behind it.
func (p *Postgres) Ring(ctx context.Context, client ID, ring Ring) error {
	return p.onPool(ctx, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, p.schema.SQL("SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"), channel(client), formatRing(ring))
		if err == nil && ring.Rouse {
			_, err = p.queries.Rouse(ctx, p.schema.On(c), uuid(client))
		}
		return err
	})
}

var errNoSessionLock = errors.New("the advisory lock of this client is held by another session")

// Listen implements Line.
func (p *Postgres) Listen(ctx context.Context, client ID) (Listener, error) {
	conn, err := p.keeper.open(ctx)
	if err != nil {
		return nil, err
	}
	l := &listener{conn: conn, schema: p.schema, queries: p.queries}
	if err := ownsession.Check(ctx, conn, p.onPool); err != nil {
		l.Close(ctx)
		return nil, err
	}
	if _, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel(client)}.Sanitize()); err != nil {
		l.Close(ctx)
		return nil, err
	}
	return l, nil
}

// ErrPooled tells that the session of the server is not the connection's own.
var ErrPooled = ownsession.ErrShared

type listener struct {
	conn    *pgx.Conn
	schema  *schema.Schema
	queries *leasedb.Queries
}

// Next implements Listener. What is no ring is a stranger's: it is passed over.
func (l *listener) Next(ctx context.Context) (Ring, error) {
	for {
		n, err := l.conn.WaitForNotification(ctx)
		if err != nil {
			if ctx.Err() != nil && !l.conn.IsClosed() {
				return Ring{}, ctx.Err()
			}
			return Ring{}, errors.Join(errListener, err)
		}
		if ring, ok := parseRing(n.Payload); ok {
			return ring, nil
		}
	}
}

// digits is the length of a number in a ring.
const digits = 16

// formatRing writes what the procedure lease_release sends.
func formatRing(r Ring) string {
	if r.Fence == 0 {
		return fmt.Sprintf("%016x", r.Ticket)
	}
	return fmt.Sprintf("%016x%016x%x", r.Ticket, r.Fence, r.Proof[:])
}

// parseRing reads what formatRing makes, and nothing else.
func parseRing(payload string) (r Ring, ok bool) {
	switch len(payload) {
	case digits:
	case 2*digits + 2*len(r.Proof):
		number, err := strconv.ParseUint(payload[digits:2*digits], 16, 63)
		if err != nil {
			return Ring{}, false
		}
		r.Fence = int64(number)
		if _, err := hex.Decode(r.Proof[:], []byte(payload[2*digits:])); err != nil {
			return Ring{}, false
		}
	default:
		return Ring{}, false
	}
	number, err := strconv.ParseUint(payload[:digits], 16, 63)
	r.Ticket = int64(number)
	return r, err == nil && formatRing(r) == payload
}

var errListener = errors.New("the listening session is over")

// Lock implements Listener.
func (l *listener) Lock(ctx context.Context, key int64) error {
	var locked bool
	if err := l.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", key).Scan(&locked); err != nil {
		return err
	}
	if !locked {
		return errNoSessionLock
	}
	return nil
}

// Ping implements Listener.
func (l *listener) Ping(ctx context.Context) error { return l.conn.Ping(ctx) }

// Close implements Listener, without waiting for a server that may be silent.
func (l *listener) Close(ctx context.Context) {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_ = l.conn.Close(ended) // it is given up either way
}
