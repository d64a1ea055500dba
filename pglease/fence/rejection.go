package fence

import (
	"context"
	"fmt"
	"time"

	"github.com/pglease/pglease/pglease/fence/internal/fencedb"
)

// MaxRows is how many rows Rejections and Commands return at most.
const MaxRows = 1000

// A Rejection is the record of one write that was refused because its owner was stale: it proves
// that fencing was needed, since some process worked on without its lease.
type Rejection struct {
	// Refused is what was refused, and what stood against it. Its Resource, Fence and GreatestFence
	// are always known.
	Refused StaleError

	RejectedAt time.Time // by the database's clock
}

// Late is for how long the lease had been stale, as far as the resource can tell: since it accepted
// the newer token. 0 where that is not known.
func (r Rejection) Late() time.Duration {
	if r.Refused.Since.IsZero() {
		return 0
	}
	return r.RejectedAt.Sub(r.Refused.Since)
}

// Record keeps a refusal that is not on record: because the transaction that met it was rolled back,
// because a trigger of fence_table made it, which ends the transaction, or because the resource is
// elsewhere. It records what AsStale finds in err, and does nothing where that is nil. A StaleError
// is recorded once, however often it is passed; each call that passes a trigger's error adds one.
//
// Call it after the transaction has ended, on the pool.
func (w *Watermarks) Record(ctx context.Context, db DB, err error) error {
	e := AsStale(err)
	if e == nil {
		return nil
	}
	if e.rejection == (LeaseID{}) {
		e.rejection = newID()
	}
	params := fencedb.RejectParams{
		RejectionID: uuid(e.rejection), ResourceID: e.Resource, TableName: e.Table,
		Fence: e.Fence, LeaseID: uuid(e.LeaseID), OwnerID: e.Owner,
		GreatestFence: e.GreatestFence, GreatestLeaseID: uuid(e.GreatestLeaseID), GreatestOwnerID: e.GreatestOwner,
	}
	if params.OwnerID == "" {
		params.OwnerID = w.owner
	}
	if !e.Since.IsZero() {
		params.GreatestAt = &e.Since
	}
	if _, err := w.queries.Reject(ctx, w.schema.On(db), params); err != nil {
		return &Error{Op: "record", Resource: e.Resource, Err: err}
	}
	return nil
}

// A Recorder keeps refusals for resources that are not in a Postgres: a store is given one, and passes
// each stale owner's error to it. An error of its own says that the refusal is not on record.
//
// Any function will do; one that keeps refusals where the watermarks are is Watermarks.Recorder.
type Recorder func(ctx context.Context, err error) error

// Recorder returns a Recorder that calls Record. db is a pool, since a refusal is recorded whatever
// becomes of the transaction that met it.
func (w *Watermarks) Recorder(db DB) Recorder {
	return func(ctx context.Context, err error) error { return w.Record(ctx, db, err) }
}

// Keep passes err on to the recorder if it is a stale owner's, and returns it: together with the
// recorder's error, where that failed. It is what a store calls with the error that it is about to
// return. A nil Recorder keeps nothing.
func (r Recorder) Keep(ctx context.Context, err error) error {
	if r == nil || !IsStale(err) {
		return err
	}
	if failure := r(ctx, err); failure != nil {
		return fmt.Errorf("%w; the refusal is not on record: %w", err, failure)
	}
	return err
}

// Rejections returns the last writes of a resource that were refused because their owner was stale,
// the newest first, at most MaxRows.
func (w *Watermarks) Rejections(ctx context.Context, db DB, resource string) ([]Rejection, error) {
	rows, err := w.queries.Rejections(ctx, w.schema.On(db), fencedb.RejectionsParams{ResourceID: resource, MaxRows: MaxRows})
	if err != nil {
		return nil, &Error{Op: "rejections", Resource: resource, Err: err}
	}
	rejections := make([]Rejection, len(rows))
	for i, row := range rows {
		rejections[i] = Rejection{RejectedAt: row.RejectedAt, Refused: StaleError{
			Resource: resource, Table: row.TableName, Fence: row.Fence, LeaseID: row.LeaseID.Bytes, Owner: row.OwnerID,
			GreatestFence: row.GreatestFence, GreatestLeaseID: row.GreatestLeaseID.Bytes, GreatestOwner: row.GreatestOwnerID,
		}}
		if row.GreatestAt != nil {
			rejections[i].Refused.Since = *row.GreatestAt
		}
	}
	return rejections, nil
}

// CountRejections counts the refusals of all resources since a time, by the database's clock.
func (w *Watermarks) CountRejections(ctx context.Context, db DB, since time.Time) (int64, error) {
	n, err := w.queries.CountRejections(ctx, w.schema.On(db), since)
	if err != nil {
		return 0, &Error{Op: "rejections", Err: err}
	}
	return n, nil
}

// A Command is the record of an accepted Op that had a Key or a Sequence.
type Command struct {
	Version    int64 // the resource's, with this command
	Fence      int64
	LeaseID    LeaseID
	Owner      string
	Key        string
	Sequence   int64
	Result     []byte
	AcceptedAt time.Time // by the database's clock
}

// Commands returns the last recorded commands of a resource, the newest first, at most MaxRows. Their
// fences never grow on the way.
func (w *Watermarks) Commands(ctx context.Context, db DB, resource string) ([]Command, error) {
	rows, err := w.queries.Commands(ctx, w.schema.On(db), fencedb.CommandsParams{ResourceID: resource, MaxRows: MaxRows})
	if err != nil {
		return nil, &Error{Op: "commands", Resource: resource, Err: err}
	}
	commands := make([]Command, len(rows))
	for i, row := range rows {
		commands[i] = Command{
			Version: row.Version, Fence: row.Fence, LeaseID: row.LeaseID.Bytes, Owner: row.OwnerID,
			Key: row.CommandKey, Sequence: row.Sequence, Result: row.Result, AcceptedAt: row.AcceptedAt,
		}
	}
	return commands, nil
}
