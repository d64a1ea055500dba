package fence

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/pglease/fence/internal/fencedb"
)

// What Claim answers.
const (
	claimEstablished = "established"
	claimStale       = "stale"
)

// errRivals: nothing was done, because others created the watermark each time.
var errRivals = errors.New("too many rivals at once")

// Advance is Watermarks.Advance in the schema "pglease".
func Advance(ctx context.Context, tx pgx.Tx, token Token, op Op) (Outcome, error) {
	return standard.Advance(ctx, tx, token, op)
}

// Establish is Watermarks.Establish in the schema "pglease".
func Establish(ctx context.Context, db DB, token Token) error {
	return standard.Establish(ctx, db, token)
}

// Advance is the two-level rule, in the caller's transaction. Under the lock of the resource's
// watermark, which is held until the transaction ends,
//
//	token < watermark                  stale owner: refused
//	token = watermark, another lease   stale owner: refused; two leases came to share a number
//	token > watermark                  the watermark rises to the token; then as below
//	token = watermark, same lease      the Op's key, sequence and expected version decide
//
// and where nothing speaks against the command, op.Apply makes the change. It counts when the
// transaction commits; what the caller changes in the same transaction counts with it.
//
// The error matches ErrStaleOwner (a *StaleError), ErrOutOfOrder (an *OrderError), ErrConflict (a
// *ConflictError), or ErrInvalidToken or ErrInvalidOp where nothing was sent; or it is op.Apply's.
// After a refusal the transaction is still usable. Commit it: that keeps the record of a stale
// owner, and the watermark that a newer token has raised although its command was refused. Who rolls
// back instead calls Record afterwards. Apply does all of this in a transaction of its own.
//
// READ COMMITTED is enough. Above it, a serialization failure (SQLSTATE 40001) can end the
// transaction and goes to the caller, who runs the whole of it again.
func (w *Watermarks) Advance(ctx context.Context, tx pgx.Tx, token Token, op Op) (Outcome, error) {
	a := attempt{watermarks: w, tx: tx, db: w.schema.On(tx), token: token, op: op}
	return a.advance(ctx)
}

// Establish raises the watermark of the token's resource and changes nothing else. Call it when the
// lease was granted, before the work is begun: from then on no write of an earlier owner is
// accepted, so what is read after it stays as it is until this owner changes it. Without it, an
// earlier owner may write until this one does. Establishing again is harmless.
//
// The error matches ErrStaleOwner (a *StaleError) where the resource has seen a newer token. On a
// transaction it counts when that commits; on a pool or a connection at once.
func (w *Watermarks) Establish(ctx context.Context, db DB, token Token) error {
	err := checkToken(token)
	if err == nil {
		err = alone(ctx, db, func() error {
			_, err := w.claim(ctx, w.schema.On(db), token, w.owner, 0)
			return err
		})
	}
	if err != nil {
		return &Error{Op: "establish", Resource: token.Resource(), Err: err}
	}
	return nil
}

// claim runs the first level. Its second run meets the watermark that a rival made during the first.
func (w *Watermarks) claim(ctx context.Context, db schema.DBTX, token Token, owner string, countUp int64) (fencedb.ClaimRow, error) {
	rejection := newID()
	for range 3 {
		row, err := w.queries.Claim(ctx, db, fencedb.ClaimParams{
			ResourceID: token.Resource(), Fence: token.Fence(), LeaseID: uuid(token.LeaseID()),
			OwnerID: owner, CountUp: countUp, RejectionID: uuid(rejection),
		})
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			continue
		case err == nil && row.Result == claimStale:
			err = &StaleError{
				Resource: token.Resource(), Fence: token.Fence(), LeaseID: token.LeaseID(), Owner: owner,
				GreatestFence: row.Fence, GreatestLeaseID: row.LeaseID.Bytes, GreatestOwner: row.OwnerID,
				Since: row.EstablishedAt, rejection: rejection,
			}
		}
		return row, err
	}
	return fencedb.ClaimRow{}, errRivals
}

// An attempt is one call of Advance under way.
type attempt struct {
	watermarks *Watermarks
	tx         pgx.Tx
	db         schema.DBTX
	token      Token
	op         Op
	refused    bool // by the rule, before Apply was called; an error of Apply may look the same
}

func (a *attempt) advance(ctx context.Context) (Outcome, error) {
	out, err := a.run(ctx)
	if err != nil {
		return Outcome{}, &Error{Op: "advance", Resource: a.token.Resource(), Err: err}
	}
	return out, nil
}

func (a *attempt) run(ctx context.Context) (Outcome, error) {
	if err := a.op.check(a.token); err != nil {
		return Outcome{}, err
	}
	var countUp int64
	if a.op.plain() {
		countUp = 1
	}
	claim, err := a.watermarks.claim(ctx, a.db, a.token, a.owner(), countUp)
	if err != nil {
		a.refused = errors.Is(err, ErrStaleOwner)
		return Outcome{}, err
	}
	out := Outcome{Version: claim.Version, Established: claim.Result == claimEstablished}
	if a.op.plain() {
		return out, nil
	}
	if before, found, err := a.before(ctx); err != nil || found {
		before.Established = out.Established
		return before, err
	}
	if err := a.validate(claim); err != nil {
		a.refused = true
		return Outcome{}, err
	}
	return a.accept(ctx, claim, out)
}

func (a *attempt) owner() string { return cmp.Or(a.op.Owner, a.watermarks.owner) }

// before looks for the same command among those accepted. It is a statement of its own: one that
// waited for the watermark's lock would not see what the rival that held it has recorded.
func (a *attempt) before(ctx context.Context) (out Outcome, found bool, err error) {
	var row fencedb.CommandByKeyRow
	switch q := a.watermarks.queries; {
	case a.op.Key != "":
		row, err = q.CommandByKey(ctx, a.db, fencedb.CommandByKeyParams{ResourceID: a.token.Resource(), CommandKey: a.op.Key})
	case a.op.Sequence > 0:
		var same fencedb.CommandBySequenceRow
		same, err = q.CommandBySequence(ctx, a.db, fencedb.CommandBySequenceParams{
			ResourceID: a.token.Resource(), Fence: a.token.Fence(), Sequence: a.op.Sequence,
		})
		row = fencedb.CommandByKeyRow(same)
		found = row.CommandKey == "" // under a key of its own it was another command
	default:
		return Outcome{}, false, nil
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return Outcome{}, false, nil
	}
	found = err == nil && (found || a.op.Key != "")
	return Outcome{Version: row.Version, Repeated: true, Result: row.Result}, found, err
}

// validate is the second level.
func (a *attempt) validate(claim fencedb.ClaimRow) error {
	if s := a.op.Sequence; s > 0 && s <= claim.LastSequence {
		return &OrderError{Sequence: s, Last: claim.LastSequence}
	}
	if v := a.op.ExpectedVersion; v != nil && *v != claim.Version {
		return &ConflictError{Expected: *v, Actual: claim.Version}
	}
	return nil
}

// accept applies the command and records it.
func (a *attempt) accept(ctx context.Context, claim fencedb.ClaimRow, out Outcome) (_ Outcome, err error) {
	if a.op.Apply != nil {
		if out.Result, err = a.apply(ctx); err != nil {
			return Outcome{}, err
		}
		if len(out.Result) > MaxResultSize {
			return Outcome{}, fmt.Errorf("%w: the result has %d bytes, the limit is %d", ErrInvalidOp, len(out.Result), MaxResultSize)
		}
	}
	params := fencedb.AcceptParams{
		ResourceID: a.token.Resource(), Fence: a.token.Fence(), LeaseID: uuid(a.token.LeaseID()),
		Version: claim.Version, OwnerID: a.owner(), Result: out.Result,
	}
	if a.op.Key != "" {
		params.CommandKey = &a.op.Key
	}
	if a.op.Sequence > 0 {
		params.Sequence = &a.op.Sequence
	}
	out.Version, err = a.watermarks.queries.Accept(ctx, a.db, params)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w: its Apply used the watermark of the same resource", ErrInvalidOp)
	}
	return out, err
}

// newID draws a UUID.
func newID() (id LeaseID) {
	_, _ = rand.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}
