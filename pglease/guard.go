package pglease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
	"github.com/pglease/pglease/pglease/internal/leasedb"
)

// Guard makes the rest of a transaction safe, in the database that holds the leases: once it has
// returned nil, no other owner can be granted the resource before tx has ended. What tx writes is
// therefore committed before the next owner begins, or not at all. Renewals are not held up. It is
// one statement.
//
// This needs no watermark and has no first-touch gap: a lease that has expired is refused also when
// nobody took the resource, and when the data has never seen a newer token.
//
// Guard also bounds tx by what the lease has left: lock_timeout, tcp_user_timeout and
// idle_in_transaction_session_timeout are lowered to that, for this transaction, unless they are
// stricter. A process that stops in the middle of tx then keeps the next owner out no longer than
// its own lease would have, counted from its last statement; [GuardedTx] counts from the lease. The
// middle of a COPY is the exception: see docs/fencing.md.
//
// The error matches ErrLost and the cause where the lease is over, and fence.ErrStaleOwner too where
// the resource has been granted to another since; tx is still usable, and should be rolled back. Any
// other error leaves the question open, and tx too.
//
// Call it first: then, at REPEATABLE READ and SERIALIZABLE, all that tx reads is of one snapshot in
// which the lease was current. Called later there, it sees the lease as it was when the snapshot was
// taken: it may refuse one that was renewed since, and cannot see that it was released or broken
// since. A newer grant it never misses: that fails with SQLSTATE 40001. A savepoint that is rolled
// back takes the guard along. A read-only transaction cannot be guarded.
func (l *Lease) Guard(ctx context.Context, tx pgx.Tx) error {
	err := l.Err()
	if err == nil {
		_, err = guardTx(ctx, tx, l.token, l.client.config.Schema)
	}
	return guardError(l.token, err)
}

// GuardToken is Lease.Guard for a process that was handed the token of another's lease, as text
// perhaps. It judges by the database alone.
func GuardToken(ctx context.Context, tx pgx.Tx, token fence.Token, options ...GuardOption) error {
	_, err := guardTx(ctx, tx, token, guardOptionsOf(options).schema)
	return guardError(token, err)
}

// A GuardOption changes how a transaction is guarded.
type GuardOption func(*guardOptions)

type guardOptions struct {
	schema string
	tx     pgx.TxOptions
}

// GuardSchema names the schema of the leases where it is not "pglease". A Lease knows its own.
func GuardSchema(name string) GuardOption { return func(o *guardOptions) { o.schema = name } }

// GuardTxOptions makes GuardedTx and GuardedTokenTx begin the transaction with these options, of
// which an empty isolation level still means READ COMMITTED.
func GuardTxOptions(tx pgx.TxOptions) GuardOption { return func(o *guardOptions) { o.tx = tx } }

func guardOptionsOf(options []GuardOption) guardOptions {
	var o guardOptions
	for _, set := range options {
		set(&o)
	}
	if o.tx.IsoLevel == "" {
		o.tx.IsoLevel = pgx.ReadCommitted // the session's default is another's choice
	}
	return o
}

func guardError(token fence.Token, err error) error {
	var already *Error
	if err == nil || errors.As(err, &already) {
		return err
	}
	return &Error{Op: "guard", Resource: token.Resource(), Err: err}
}

// guardTx runs the guard and returns what the lease has left by the database's clock.
func guardTx(ctx context.Context, tx pgx.Tx, token fence.Token, schemaName string) (time.Duration, error) {
	return guardOn(ctx, tx, tx, token, schemaName)
}

// guardOn runs the guard on db, and on after what is asked after it has refused.
func guardOn(ctx context.Context, db, after leasedb.DBTX, token fence.Token, schemaName string) (time.Duration, error) {
	if token.IsZero() {
		return 0, fmt.Errorf("%w: it is the zero token", fence.ErrInvalidToken)
	}
	s, err := schemaOf(schemaName)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	row, err := leasedb.New().Guard(ctx, s.On(db), guardParams(token))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, guardRefused(ctx, s.On(after), token)
	case err != nil:
		return 0, err
	case row.Microseconds <= 0:
		return 0, &LostError{Cause: ErrExpired}
	}
	return time.Duration(row.Microseconds) * time.Microsecond, nil
}

func guardParams(token fence.Token) leasedb.GuardParams {
	return leasedb.GuardParams{
		ResourceID: token.Resource(), LeaseID: pgtype.UUID{Bytes: token.LeaseID(), Valid: true}, Fence: token.Fence(),
	}
}

// errNoLease is also what a pool to the wrong database meets.
var errNoLease = errors.New("this database has no lease of the resource: it was pruned, or is kept elsewhere")

// guardRefused asks why. The answer is for people: whatever it is, the lease is over.
func guardRefused(ctx context.Context, db leasedb.DBTX, token fence.Token) error {
	row, err := leasedb.New().GuardRefused(ctx, db, leasedb.GuardRefusedParams{
		ResourceID: token.Resource(), LeaseID: pgtype.UUID{Bytes: token.LeaseID(), Valid: true}, Fence: token.Fence(),
	})
	if errors.Is(err, pgx.ErrNoRows) { // if it was pruned, it had expired
		return &LostError{Cause: ErrExpired, Last: errNoLease}
	}
	if err != nil {
		return &LostError{Cause: ErrExpired, Last: err}
	}
	lost := lossOf(authority.End{Ended: row.Ended, Taken: !row.Same, By: row.EndedBy, Reason: row.Reason})
	if row.Same || row.Fence < token.Fence() { // a row that is behind the token was restored
		return lost
	}
	return fmt.Errorf("%w; %w", lost, &fence.StaleError{
		Resource: token.Resource(), Fence: token.Fence(), LeaseID: token.LeaseID(),
		GreatestFence: row.Fence, GreatestLeaseID: row.LeaseID.Bytes, GreatestOwner: row.OwnerID, Since: row.AcquiredAt,
	})
}

// schemas keeps each schema with the statements written for it.
var schemas sync.Map // name -> *schema.Schema

func schemaOf(name string) (*schema.Schema, error) {
	if known, ok := schemas.Load(name); ok {
		return known.(*schema.Schema), nil
	}
	s, err := schema.New(name)
	if err != nil {
		return nil, err
	}
	known, _ := schemas.LoadOrStore(name, s)
	return known.(*schema.Schema), nil
}
