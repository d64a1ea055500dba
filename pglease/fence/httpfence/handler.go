package httpfence

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglease/pglease/pglease/fence"
)

type txKey struct{}

// Tx returns the transaction in which a handler behind Guard.Handler makes its changes, given the
// context of its request; nil for a request that needs no token. The Guard ends it, by the handler's
// reply: its Commit and Rollback do nothing and say so, and a handler that called Rollback, or ended
// it by SQL, gets its reply replaced by an error. Begin makes a savepoint, as ever.
func Tx(ctx context.Context) pgx.Tx {
	tx, _ := ctx.Value(txKey{}).(pgx.Tx)
	return tx
}

// errDeclined: the handler replied that it has done nothing.
var errDeclined = errors.New("declined by the handler")

// Handler returns a handler that lets those requests through to next whose token the resource
// accepts, one after another, each in a transaction that next finds by Tx. The reply is kept until
// the transaction was committed; doc.go says what each means. A reply from 400 on, or a panic, rolls
// the transaction back. next must not keep the request, its body or its ResponseWriter beyond its
// return; the ResponseWriter can neither flush nor hijack.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if safe(r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		g.pass(w, r, func(ctx context.Context, p passage) (*reply, error) { return p.handle(ctx, next) })
	})
}

// pass lets one request in, in its turn, and answers it.
func (g *Guard) pass(w http.ResponseWriter, r *http.Request, through func(context.Context, passage) (*reply, error)) {
	p, err := g.enter(w, r)
	if err == nil {
		var out *reply
		if out, err = g.inTurn(r.Context(), p, through); err == nil {
			out.send(w)
			return
		}
	}
	problemOf(err, p.token.Resource()).write(w)
}

func (g *Guard) inTurn(ctx context.Context, p passage, through func(context.Context, passage) (*reply, error)) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, g.config.Timeout)
	defer cancel()
	leave, err := g.line.enter(ctx, p.token.Resource())
	if err != nil {
		return nil, err
	}
	defer leave()
	return through(ctx, p)
}

// handle runs the handler in a transaction.
func (p passage) handle(ctx context.Context, next http.Handler) (*reply, error) {
	tx, err := p.guard.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer p.guard.rollback(ctx, tx) // after the commit it does nothing; it is for panics too
	out := newReply(p.guard.config.MaxBytes)
	op := p.op
	op.Apply = func(ctx context.Context, tx pgx.Tx) ([]byte, error) { return p.serve(ctx, tx, next, out) }

	outcome, err := p.guard.config.Watermarks.Advance(ctx, tx, p.token, op)
	switch {
	case errors.Is(err, errDeclined):
		p.decline(ctx, tx)
		return out, nil
	case errors.Is(err, fence.ErrStaleOwner), errors.Is(err, fence.ErrOutOfOrder):
		// It keeps the record of the refusal, or a newer owner's fence. Should it fail, the refusal
		// stands.
		_ = tx.Commit(ctx)
		return nil, err
	case errors.Is(err, fence.ErrInvalidOp): // its result is more than can be kept with a key
		return nil, fmt.Errorf("%w: %w", ErrTooLarge, err)
	case err != nil:
		return nil, err
	case outcome.Repeated:
		if out, err = restored(outcome.Result); err != nil {
			return nil, err
		}
	}
	return out, committed(tx.Commit(ctx))
}

// serve is what Advance applies. The reply is recorded with the command, where it has a name.
func (p passage) serve(ctx context.Context, tx pgx.Tx, next http.Handler, out *reply) ([]byte, error) {
	ctx = context.WithValue(NewContext(ctx, p.token), txKey{}, tx)
	next.ServeHTTP(out, p.request.WithContext(ctx))
	switch {
	case !tx.Conn().IsClosed() && tx.Conn().PgConn().TxStatus() == 'I': // a COMMIT of its own may have come through
		return nil, fmt.Errorf("%w: the handler ended the transaction", ErrUnknownOutcome)
	case out.large:
		return nil, ErrTooLarge
	case out.declined():
		return nil, errDeclined
	case p.op.Key == "" && p.op.Sequence == 0:
		return nil, nil
	}
	return out.keep()
}

// decline takes back what a handler did that then declined, and keeps the fence: a newer owner whose
// command is wrong shuts out those before it all the same. Where that fails, it does so with its next
// command.
func (p passage) decline(ctx context.Context, tx pgx.Tx) {
	p.guard.rollback(ctx, tx)
	again, err := p.guard.begin(ctx)
	if err != nil {
		return
	}
	defer p.guard.rollback(ctx, again)
	claim := fence.Op{Owner: p.op.Owner, Apply: func(context.Context, pgx.Tx) ([]byte, error) { return nil, errDeclined }}
	if _, err := p.guard.config.Watermarks.Advance(ctx, again, p.token, claim); errors.Is(err, errDeclined) {
		_ = again.Commit(ctx)
	}
}

// committed tells what the end of a commit means.
func committed(err error) error {
	var pg *pgconn.PgError
	switch {
	case err == nil, pgconn.SafeToRetry(err), errors.Is(err, pgx.ErrTxCommitRollback):
		return err // it was not sent, or there was nothing left to commit
	case errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR":
		return err // a session that is ended, which is FATAL, may have committed before
	}
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
}
