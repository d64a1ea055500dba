package pglease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
	"github.com/pglease/pglease/pglease/internal/leasedb"
)

// boundEvery is how old the bounds of a guarded transaction may be when it sends a statement. An
// idle time that Postgres measures begins anew with each statement, so a bound that was set once
// would let a process which stops late keep the next owner out for twice what its lease had left.
const boundEvery = 500 * time.Millisecond

// GuardedTx runs fn in a transaction that is committed only while the lease is current: it begins
// it, guards it as [Lease.Guard] does, calls fn, checks the lease once more as the last thing before
// the commit, and commits, in as many round trips as without a guard. The pool must lead to the
// database of the leases. The transaction is READ COMMITTED unless [GuardTxOptions] says otherwise; at
// REPEATABLE READ all that fn reads is of the one snapshot in which the guard saw the lease.
//
// Each statement that fn sends first asks whether the lease is still trusted here, and about twice a
// second the guard is renewed before it. If this process stops in the middle, Postgres ends the
// transaction by the time that the lease would have ended, give or take a second and the running
// time of a statement under way. A COPY is under way until its source is at its end; each of its rows
// asks the lease too, but for a process that stops in the middle of one Postgres waits without bound.
//
// fn must not commit or roll back, by SQL neither: that is an error, after which no statement of fn
// is sent any more. What a COMMIT of its own has committed stays so.
//
// The error is nil when the transaction was committed. Otherwise it is fn's, or matches ErrLost,
// and nothing was committed; or it matches ErrUnknownOutcome: the commit was sent, its reply was
// lost, and it may have been applied. Also then the resource had no other owner until the commit
// was over, one way or the other.
func GuardedTx(ctx context.Context, pool *pgxpool.Pool, lease *Lease, fn func(tx pgx.Tx) error, options ...GuardOption) error {
	o := guardOptionsOf(options)
	o.schema = lease.client.config.Schema
	return guarded(ctx, pool, &txGuard{token: lease.token, lease: lease, options: o}, fn)
}

// GuardedTokenTx is GuardedTx for a process that was handed the token of another's lease. How long
// it may be trusted is asked of the database, about twice a second.
func GuardedTokenTx(ctx context.Context, pool *pgxpool.Pool, token fence.Token, fn func(tx pgx.Tx) error, options ...GuardOption) error {
	return guarded(ctx, pool, &txGuard{token: token, options: guardOptionsOf(options)}, fn)
}

// rollbackTime bounds the rollback that follows a failure, whose context may have ended.
const rollbackTime = 5 * time.Second

func guarded(ctx context.Context, pool *pgxpool.Pool, g *txGuard, fn func(pgx.Tx) error) (err error) {
	if err := g.trusted(); err != nil {
		return guardError(g.token, err)
	}
	if g.conn, err = pool.Acquire(ctx); err != nil {
		return guardError(g.token, err)
	}
	defer g.end(ctx)
	if err := g.begin(ctx); err != nil {
		return guardError(g.token, err)
	}
	if err := fn(guardedTx{Tx: g.tx, guard: g, top: true}); err != nil {
		return g.withLoss(err)
	}
	if g.givenUp {
		return guardError(g.token, errNotYours)
	}
	return g.finish(ctx)
}

// A txGuard keeps one transaction within one lease.
type txGuard struct {
	conn    *pgxpool.Conn
	tx      pgx.Tx // nil before it was sent
	token   fence.Token
	lease   *Lease // nil where only its token is known
	options guardOptions

	givenUp bool      // the function called Rollback
	objects bool      // the function has large objects, which are closed with tx alone
	closed  bool      // ended here: the connection may be another's
	bounded time.Time // when the bounds were set last
	until   time.Time // the lease is trusted until then, where only its token is known
}

// readCommitted tells that a second look at the lease sees its renewals. To Postgres READ UNCOMMITTED
// is the same.
func (g *txGuard) readCommitted() bool {
	return g.options.tx.IsoLevel == pgx.ReadCommitted || g.options.tx.IsoLevel == pgx.ReadUncommitted
}

// ended tells that the transaction is over, which the server says with each answer: what is sent
// after that would be committed by itself. It asks no connection that waits for an answer.
func (g *txGuard) ended() bool {
	if g.tx == nil || g.closed || g.tx.Conn().IsClosed() {
		return false // not begun; or the next statement says so
	}
	return g.tx.Conn().PgConn().TxStatus() == 'I'
}

// trusted asks without a round trip.
func (g *txGuard) trusted() error {
	switch {
	case g.ended():
		return errNotYours
	case g.lease != nil:
		return g.lease.Err()
	case !g.until.IsZero() && !time.Now().Before(g.until):
		return &LostError{Cause: ErrExpired}
	}
	return nil
}

// begin begins the transaction and guards it, in one round trip.
func (g *txGuard) begin(ctx context.Context) error {
	first := &opening{conn: g.conn.Conn(), options: g.options.tx}
	err := g.guardOn(ctx, first, g.conn.Conn())
	g.tx = first.tx
	return err
}

// guard locks the lease's row, or finds it still locked, and sets the bounds.
func (g *txGuard) guard(ctx context.Context) error { return g.guardOn(ctx, g.tx, g.tx) }

func (g *txGuard) guardOn(ctx context.Context, db, after leasedb.DBTX) error {
	sent := time.Now()
	remaining, err := guardOn(ctx, db, after, g.token, g.options.schema)
	if err == nil {
		g.bounded = sent
		g.until = sent.Add(time.Duration(float64(remaining) * (1 - DefaultClockDrift)))
	}
	return err
}

// asks tells that the database has the last word on the lease. Under a snapshot it sees nothing new,
// and of a lease that is over here it is not asked.
func (g *txGuard) asks() bool { return g.readCommitted() && (g.lease == nil || g.lease.Err() == nil) }

// ready is asked before each statement.
func (g *txGuard) ready(ctx context.Context) error {
	if g.closed {
		return pgx.ErrTxClosed
	}
	if time.Since(g.bounded) < boundEvery {
		return g.trusted()
	}
	return g.last(ctx)
}

// last asks the database again where that can see anything new. Under a snapshot it cannot, and
// need not: the row is locked, so there is no other owner; what remains is the time.
func (g *txGuard) last(ctx context.Context) error {
	if g.ended() {
		return errNotYours
	}
	if g.asks() {
		return g.guard(ctx)
	}
	if err := g.trusted(); err != nil {
		return err
	}
	remaining := time.Until(g.until)
	if g.lease != nil {
		remaining = g.lease.Remaining()
	}
	s, err := schemaOf(g.options.schema)
	if err != nil {
		return err
	}
	g.bounded = time.Now()
	_, err = leasedb.New().BoundTx(ctx, s.On(g.tx), remaining)
	return err
}

// withLoss adds the loss of the lease to an error that it may have caused: what Postgres says of a
// transaction that it ended tells nothing of why.
func (g *txGuard) withLoss(err error) error {
	if loss := g.trusted(); loss != nil && !errors.Is(err, ErrLost) {
		return errors.Join(err, loss)
	}
	return err
}

// finish looks at the lease for the last time and commits, as a rule in one round trip.
func (g *txGuard) finish(ctx context.Context) error {
	asks := g.asks()
	var err error
	switch {
	case asks && g.objects, time.Since(g.bounded) >= boundEvery: // what the commit itself waits for is bounded too
		err = g.last(ctx)
	case g.ended():
		err = errNotYours
	case !asks:
		err = g.trusted()
	}
	switch {
	case err != nil:
		return guardError(g.token, g.withLoss(err))
	case asks && !g.objects:
		return g.guardedCommit(ctx)
	}
	return g.outcome(g.tx.Commit(ctx))
}

// guardedCommit sends the commit along with a guard that it depends on.
func (g *txGuard) guardedCommit(ctx context.Context) error {
	s, err := schemaOf(g.options.schema)
	if err != nil {
		return guardError(g.token, err)
	}
	last := &closing{conn: g.conn.Conn(), options: g.options.tx}
	_, err = leasedb.New().GuardLast(ctx, s.On(last), leasedb.GuardLastParams(guardParams(g.token)))
	var pg *pgconn.PgError
	if !last.answered && errors.As(err, &pg) && pg.Code == leaseOver {
		g.rollback(ctx)
		return guardError(g.token, guardRefused(ctx, s.On(g.conn.Conn()), g.token))
	}
	return g.outcome(err)
}

// leaseOver is the code of the failure with which GuardLast keeps a commit from being made.
const leaseOver = "22P02"

// outcome turns the error of a commit into that of the call.
func (g *txGuard) outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrTxCommitRollback), authority.KindOf(err) != authority.Unknown:
		return guardError(g.token, g.withLoss(err))
	}
	return &Error{Op: "commit", Resource: g.token.Resource(), Err: fmt.Errorf("%w: %w", ErrUnknownOutcome, err)}
}

// rollback ends the transaction unless it has ended.
func (g *txGuard) rollback(ctx context.Context) {
	if g.tx == nil || g.conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	_ = g.tx.Rollback(ctx) // where it fails, the connection is closed
}

// end gives the connection back. What the function has kept of the transaction does nothing any more.
func (g *txGuard) end(ctx context.Context) {
	g.closed = true
	g.rollback(ctx)
	g.conn.Release()
}
