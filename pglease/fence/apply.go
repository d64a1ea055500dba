package fence

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglease/pglease/internal/bounded"
)

// A Beginner begins transactions: a pgx pool or connection. One of your own passes the options on as they
// are: their BeginQuery bounds the transaction.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// tries bounds how often that is run which a deadlock or a serialization failure undid.
const tries = 8

// Apply is Advance in a transaction of its own, at READ COMMITTED: op.Apply makes the change. A
// refusal is committed, so that a stale owner is on record and the watermark of a newer one stays
// up; the error is then as of Advance. A transaction that the database undid to resolve a conflict
// is run again, op.Apply included.
//
// After any other error, the end of ctx included, the command may have been applied or not. With a
// Key or a Sequence, repeat the call as it was: if it was applied, the Outcome is Repeated.
//
// A process that stops within the transaction keeps the next owner out until Config.IdleTimeout has
// passed since its last statement. Then Postgres ends the transaction and its session (SQLSTATE 25P03),
// also where op.Apply is only busy with something else for so long between two statements.
func (w *Watermarks) Apply(ctx context.Context, db Beginner, token Token, op Op) (out Outcome, err error) {
	err = again(ctx, func() error {
		out, err = w.applyOnce(ctx, db, token, op)
		return err
	})
	return out, err
}

// alone runs statements on a connection, which the database may undo where the session's default is
// above READ COMMITTED, until it does not. In a transaction that is the caller's to do, who runs the
// whole of it again.
func alone(ctx context.Context, db DB, run func() error) error {
	if _, within := db.(pgx.Tx); within {
		return run()
	}
	return again(ctx, run)
}

func again(ctx context.Context, run func() error) error {
	var before error
	for try := 1; ; try++ {
		err := run()
		if state(err) == "25P02" && before != nil { // there was a transaction of the caller's after all
			return before
		}
		if !undone(err) || try == tries {
			return err
		}
		before = err
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(rand.N(time.Millisecond << min(try, 5))):
		}
	}
}

func (w *Watermarks) applyOnce(ctx context.Context, db Beginner, token Token, op Op) (out Outcome, err error) {
	var refused error
	err = bounded.Tx(ctx, db, w.idle, func(tx pgx.Tx) (err error) {
		a := attempt{watermarks: w, tx: tx, db: w.schema.On(tx), token: token, op: op}
		out, err = a.advance(ctx)
		if a.refused {
			refused, err = err, nil
		}
		return err
	})
	switch {
	case err != nil:
		return Outcome{}, err
	case refused != nil:
		return Outcome{}, refused
	}
	return out, nil
}

// undone tells that the database took the transaction back to resolve a conflict.
func undone(err error) bool { return state(err) == "40001" || state(err) == "40P01" }

// state is the SQLSTATE of a database's error.
func state(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
