package authority

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/leasedb"
)

// conflictTries bounds the attempts at a statement that fails by serialization or deadlock. With
// the isolation level pinned after the first, a second failure can only be a deadlock.
const conflictTries = 8

// Postgres is the authority in a Postgres database.
type Postgres struct {
	schema  *schema.Schema
	queries *leasedb.Queries
	pool    *pgxpool.Pool
	keeper  *keeperConn
	spare   *keeperConn // for what cannot wait while the pool is drained; never the keeper's, which no row lock may hold up
	pin     atomic.Bool // see readCommitted
	refused refusals
	grace   grace
}

// NewPostgres returns the authority that lives in the given schema of the pool's database.
func NewPostgres(pool *pgxpool.Pool, s *schema.Schema) *Postgres {
	return &Postgres{schema: s, queries: leasedb.New(), pool: pool, keeper: &keeperConn{pool: pool}, spare: &keeperConn{pool: pool}}
}

// on returns what the generated code runs on.
func (p *Postgres) on(c conn) leasedb.DBTX {
	return p.schema.On(readCommitted{conn: c, pin: &p.pin})
}

// retry repeats a statement that took no effect because of a conflict.
func (p *Postgres) retry(ctx context.Context, statement func() error) error {
	for try := 1; ; try++ {
		err := statement()
		if err == nil || KindOf(err) != Conflict || try == conflictTries {
			return err
		}
		p.pin.Store(true)
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(time.Duration(rand.Int64N(int64(time.Millisecond) << min(try, 5)))):
		}
	}
}

// errDrained: the application holds every connection of its pool.
var errDrained = errors.New("the pool has no connection to give")

// fromPool takes a connection. Where it may have to wait for one, it leaves half of the time that there
// is for the statement on another connection. Where one is idle that bound is not worth its timer,
// which costs a tenth of a short request; should the idle one be gone in the next instant, the caller's
// deadline is the bound.
func (p *Postgres) fromPool(ctx context.Context) (*pgxpool.Conn, error) {
	deadline, bounded := ctx.Deadline()
	if !bounded || p.pool.Stat().IdleConns() > 0 {
		return p.pool.Acquire(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
	defer cancel()
	c, err := p.pool.Acquire(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		if stat := p.pool.Stat(); stat.AcquiredConns() >= stat.MaxConns() {
			return nil, errDrained
		}
	}
	return c, err
}

// onPool runs f as onAny does, and learns from what it is refused for.
func (p *Postgres) onPool(ctx context.Context, f func(*pgx.Conn) error) error {
	if err := p.onAny(ctx, f); err != nil {
		return p.inGrace(ctx, err)
	}
	return nil
}

// onAny runs f on a connection of the pool, or on a spare one where the pool is drained. One that
// reaches a server which is no primary, or is going down, is not given back, so that the pool connects
// anew.
func (p *Postgres) onAny(ctx context.Context, f func(*pgx.Conn) error) error {
	c, err := p.fromPool(ctx)
	if errors.Is(err, errDrained) {
		return p.spare.use(ctx, func(c *pgx.Conn) error {
			return p.retry(ctx, func() error { return f(c) })
		})
	}
	if err != nil {
		return notSentError{err}
	}
	defer c.Release()
	err = replicated(c.Conn().PgConn(), func() error {
		return p.retry(ctx, func() error { return f(c.Conn()) })
	})
	if err != nil && wrongServer(err) {
		return errors.Join(err, c.Conn().Close(ctx))
	}
	return err
}

// Acquire implements Authority.
func (p *Postgres) Acquire(ctx context.Context, r Request) (answer Answer, err error) {
	sent := time.Now()
	err = p.onPool(ctx, func(c *pgx.Conn) (err error) {
		for _, next := range p.tries(r) {
			if answer, err = next(p, ctx, c, r); err != nil || answer.Outcome != ask {
				break
			}
		}
		return err
	})
	if err != nil {
		return answer.held(err)
	}
	p.refused.note(r.Resource, sent, answer)
	return answer, nil
}

// ask is the answer of a statement that has none: the next one must tell.
const ask = "ask"

// A try is one statement of an acquire. Each is followed by the next until one does not answer ask. Only acquire can do
// whatever is to be done, and it costs as much as the two others, of which one grants and one refuses where that is
// all there is to it.
type try func(*Postgres, context.Context, *pgx.Conn, Request) (Answer, error)

var (
	plainTry      = []try{(*Postgres).acquire}
	triesOfFree   = []try{(*Postgres).acquireFree, (*Postgres).peek, (*Postgres).acquire}
	triesOfHeld   = []try{(*Postgres).peek, (*Postgres).acquireFree, (*Postgres).acquire}
	bargingOfHeld = []try{(*Postgres).peek, (*Postgres).acquire}
)

func (p *Postgres) tries(r Request) []try {
	held := p.refused.likely(r.Resource)
	switch {
	case !r.Fresh || r.Barging && !held:
		return plainTry
	case r.Barging:
		return bargingOfHeld
	case held:
		return triesOfHeld
	}
	return triesOfFree
}

func (p *Postgres) acquireFree(ctx context.Context, c *pgx.Conn, r Request) (Answer, error) {
	row, err := p.queries.AcquireFree(ctx, p.on(c), leasedb.AcquireFreeParams{
		ResourceID: r.Resource, RequestID: uuid(r.ID), OwnerID: r.Owner, TTL: r.TTL, LockDelay: r.LockDelay,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Answer{Outcome: ask}, nil
	}
	return answerOf(c, r, leasedb.AcquireRow{
		Outcome: string(Granted), LeaseID: row.LeaseID, Fence: row.Fence, Remaining: row.Remaining,
		DatabaseTime: row.DatabaseTime, WaitsForStandby: row.WaitsForStandby,
	}), err
}

func (p *Postgres) acquire(ctx context.Context, c *pgx.Conn, r Request) (Answer, error) {
	row, err := p.queries.Acquire(ctx, p.on(c), leasedb.AcquireParams{
		ResourceID: r.Resource, RequestID: uuid(r.ID), OwnerID: r.Owner, TTL: r.TTL, LockDelay: r.LockDelay,
		Barging: r.Barging, Ticket: r.Ticket,
	})
	if errors.Is(err, pgx.ErrNoRows) { // a rival is creating the row
		return Answer{Outcome: Held}, nil
	}
	return answerOf(c, r, row), err
}

func answerOf(c *pgx.Conn, r Request, row leasedb.AcquireRow) Answer {
	answer := Answer{
		Outcome:      Outcome(row.Outcome),
		Owner:        row.OwnerID,
		Remaining:    row.Remaining,
		DatabaseTime: row.DatabaseTime,
	}
	if answer.Outcome == Granted || answer.Outcome == Repeated { // a rival's token is not ours to have
		answer.Token = token(r.Resource, row.Fence, row.LeaseID)
	}
	answer.Unconfirmed = row.WaitsForStandby && (answer.Outcome == Repeated || !watched(c.PgConn()))
	return answer
}

// Renew implements Authority.
func (p *Postgres) Renew(ctx context.Context, leases []fence.Token, generation int64) ([]Renewal, error) {
	resources, ids, _ := columns(leases)
	var rows []leasedb.RenewRow
	err := p.keeper.use(ctx, func(c *pgx.Conn) error {
		err := p.retry(ctx, func() (err error) {
			rows, err = p.queries.Renew(ctx, p.on(c), leasedb.RenewParams{Resources: resources, Leases: ids})
			return err
		})
		if err == nil && len(rows) > 0 && Generation(rows[0].Floor) < generation {
			return fmt.Errorf("%w: it renews in generation %d, %d has been seen", ErrStaleServer, Generation(rows[0].Floor), generation)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	renewed := make([]Renewal, len(rows))
	for i, row := range rows {
		renewed[i] = Renewal{
			Lease: row.LeaseID.Bytes, Remaining: row.Remaining, DatabaseTime: row.DatabaseTime, Floor: row.Floor, Awaited: row.Awaited,
		}
	}
	return renewed, nil
}

// Ends implements Authority.
func (p *Postgres) Ends(ctx context.Context, leases []fence.Token) (ends []End, err error) {
	err = p.keeper.use(ctx, func(c *pgx.Conn) error {
		ends, err = p.ends(ctx, c, leases)
		return err
	})
	return ends, err
}

func (p *Postgres) ends(ctx context.Context, on conn, leases []fence.Token) ([]End, error) {
	resources, ids, fences := columns(leases)
	var rows []leasedb.LeaseStatesRow
	err := p.retry(ctx, func() (err error) {
		rows, err = p.queries.LeaseStates(ctx, p.on(on), leasedb.LeaseStatesParams{Resources: resources, Leases: ids, Fences: fences})
		return err
	})
	if err != nil {
		return nil, err
	}
	ends := make([]End, len(rows))
	for i, row := range rows {
		ends[i] = End{
			Lease: row.LeaseID.Bytes, Current: row.Current, Ended: row.Ended, Taken: row.Taken, By: row.EndedBy, Reason: row.Reason,
			DatabaseTime: row.DatabaseTime,
		}
	}
	return ends, nil
}

// Release implements Authority.
func (p *Postgres) Release(ctx context.Context, r ReleaseRequest) (end End, next Handover, err error) {
	sent := time.Now()
	err = p.onPool(ctx, func(c *pgx.Conn) (err error) {
		if r.Unawaited && r.Successor == "" {
			if end, err = p.releaseUnawaited(ctx, c, r.Lease); err != nil || end.Ended != EndUnknown {
				return err
			}
		}
		end, next, err = p.release(ctx, c, r)
		return err
	})
	if err == nil {
		p.refused.handed(r.Lease.Resource(), sent, next)
	}
	if err != nil || end.Ended != EndUnknown {
		return end, next, err
	}
	err = p.onPool(ctx, func(c *pgx.Conn) error { // it was over: ask how
		ends, err := p.ends(ctx, c, []fence.Token{r.Lease})
		if err == nil {
			end = ends[0]
		}
		return err
	})
	return end, next, err
}

func (p *Postgres) releaseUnawaited(ctx context.Context, c *pgx.Conn, lease fence.Token) (End, error) {
	row, err := p.queries.ReleaseUnawaited(ctx, p.on(c), leasedb.ReleaseUnawaitedParams{
		ResourceID: lease.Resource(), LeaseID: uuid(lease.LeaseID()),
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return End{}, nil
	case err != nil:
		return End{}, err
	case row.InTime:
		return End{Lease: lease.LeaseID(), Ended: EndReleased}, nil
	}
	return End{Lease: lease.LeaseID(), Ended: EndExpired}, nil
}

// again is Abandon's answer where it must run once more.
const again = "again"

// Abandon implements Authority.
func (p *Postgres) Abandon(ctx context.Context, resource string, request ID) (Handover, error) {
	ended := again
	for ended == again { // the row was created while it looked
		err := p.onPool(ctx, func(c *pgx.Conn) (err error) {
			ended, err = p.queries.Abandon(ctx, p.on(c), leasedb.AbandonParams{ResourceID: resource, RequestID: uuid(request)})
			return err
		})
		if err != nil {
			return Handover{}, err
		}
	}
	if ended == "" {
		return Handover{}, nil
	}
	return p.Promote(ctx, resource)
}

// Close implements Authority.
func (p *Postgres) Close(ctx context.Context) {
	p.keeper.close(ctx)
	p.spare.close(ctx)
}

// migrationMarks are tables that the migrations of line lease brought, in order. What the database
// has is judged by them and not by a tool's version table: users may bring the SQL in by their own.
var migrationMarks = []string{"resource_lease", "lease_waiter"}

// SchemaVersion is the migration that the statements of this package are written for.
var SchemaVersion = len(migrationMarks)

// Version returns the last migration that the database has; 0 where it has none.
func (p *Postgres) Version(ctx context.Context) (version int, err error) {
	err = p.onPool(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, `SELECT coalesce(max(m.version), 0)::int FROM unnest($1::text[]) WITH ORDINALITY AS m(name, version)
			WHERE to_regclass($2 || '.' || m.name) IS NOT NULL`, migrationMarks, p.schema.Quoted()).Scan(&version)
	})
	return version, err
}

func uuid(id [16]byte) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

func uuids(ids []ID) []pgtype.UUID {
	list := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		list[i] = uuid(id)
	}
	return list
}

func columns(leases []fence.Token) (resources []string, ids []pgtype.UUID, fences []int64) {
	resources, ids, fences = make([]string, len(leases)), make([]pgtype.UUID, len(leases)), make([]int64, len(leases))
	for i, t := range leases {
		resources[i], ids[i], fences[i] = t.Resource(), uuid(t.LeaseID()), t.Fence()
	}
	return resources, ids, fences
}
