package fence

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// errNotYours keeps Apply from ending the transaction: the watermark and the record of the command
// belong to it.
var errNotYours = errors.New("the transaction ends after Apply, which tried to end it or did")

// A heldTx is the transaction as Apply sees it.
type heldTx struct {
	pgx.Tx
	givenUp *bool // Apply called Rollback
}

// Commit implements pgx.Tx.
func (heldTx) Commit(context.Context) error { return errNotYours }

// Rollback implements pgx.Tx. What was to be rolled back is never committed, though few look at this
// error.
func (t heldTx) Rollback(context.Context) error {
	*t.givenUp = true
	return errNotYours
}

// apply calls Apply, and makes sure that there still is a transaction. What Accept did without one
// would stay, whatever becomes of the rest.
func (a *attempt) apply(ctx context.Context) ([]byte, error) {
	var givenUp bool
	result, err := a.op.Apply(ctx, heldTx{a.tx, &givenUp})
	if err == nil && (givenUp || ended(a.tx)) {
		err = errNotYours
	}
	return result, err
}

// ended tells that a transaction was ended by a statement of its own.
func ended(tx pgx.Tx) bool {
	conn := tx.Conn()
	return conn != nil && !conn.IsClosed() && conn.PgConn().TxStatus() == 'I'
}
