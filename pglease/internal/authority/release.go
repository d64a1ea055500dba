package authority

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/leasedb"
)

// callRelease is ReleaseUnrung, and tells the waiter that was served too. It always has a row; its outcome is null
// where ReleaseUnrung has none.
const callRelease = `-- name: Release :one
CALL /*schema.*/lease_release($1::text, $2::uuid, $3::text, $4::uuid, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)`

// release ends a lease and serves its line. The procedure ends a transaction, so it cannot be called within the
// one that pins an isolation level: what is served then is to be told by the caller.
func (p *Postgres) release(ctx context.Context, c *pgx.Conn, r ReleaseRequest) (End, Handover, error) {
	if (readCommitted{conn: c, pin: &p.pin}).bare() {
		return p.releaseAndRing(ctx, c, r)
	}
	row, err := p.queries.ReleaseUnrung(ctx, p.on(c), leasedb.ReleaseUnrungParams{
		ResourceID: r.Lease.Resource(), LeaseID: uuid(r.Lease.LeaseID()), Successor: r.Successor,
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return End{}, Handover{}, nil
	case err != nil:
		return End{}, Handover{}, err
	}
	end, next := releaseOf(r, row)
	return end, next, nil
}

func (p *Postgres) releaseAndRing(ctx context.Context, c *pgx.Conn, r ReleaseRequest) (End, Handover, error) {
	var row leasedb.ReleaseUnrungRow
	var outcome pgtype.Text
	var inTime, rung pgtype.Bool
	var ticket, number pgtype.Int8
	var remaining *time.Duration
	var process pgtype.Int4
	err := c.QueryRow(ctx, p.schema.SQL(callRelease), r.Lease.Resource(), uuid(r.Lease.LeaseID()), r.Successor, uuid(r.Client)).Scan(
		&outcome, &inTime, &row.ClientID, &row.RequestID, &ticket, &row.NextLeaseID, &number, &remaining, &rung, &row.WaitsForStandby, &process)
	switch {
	case err != nil && rung.Bool: // the row comes after the commit, so only the ring was lost: the caller may ring
		rung.Bool = false
	case err != nil:
		return p.ended(ctx, c, r, err)
	case !outcome.Valid:
		return End{}, Handover{}, nil
	}
	row.Outcome, row.InTime, row.Ticket, row.NextFence = outcome.String, inTime.Bool, ticket.Int64, number.Int64
	row.SessionPid = process.Int32
	if remaining != nil {
		row.NextRemaining = *remaining
	}
	end, next := releaseOf(r, row)
	next.Rung = rung.Bool
	return end, next, nil
}

// ended looks whether a release that the server answered with an error was committed before that: the error may be
// of the ring. Who was served is not known then, and finds out by looking.
func (p *Postgres) ended(ctx context.Context, c *pgx.Conn, r ReleaseRequest, failed error) (End, Handover, error) {
	var pg *pgconn.PgError
	if !errors.As(failed, &pg) || KindOf(failed) == Conflict || c.IsClosed() {
		return End{}, Handover{}, failed
	}
	ends, err := p.ends(ctx, c, []fence.Token{r.Lease})
	if err != nil || ends[0].Ended != EndReleased {
		return End{}, Handover{}, failed
	}
	return ends[0], Handover{}, nil
}

func releaseOf(r ReleaseRequest, row leasedb.ReleaseUnrungRow) (End, Handover) {
	end := End{Lease: r.Lease.LeaseID(), Ended: EndReleased}
	switch {
	case row.Outcome == EndAlone:
		end.Ended, end.Current = EndAlone, true
	case !row.InTime:
		end.Ended = EndExpired
	}
	next := handover(r.Lease.Resource(), row.Outcome, row.ClientID, row.RequestID, row.Ticket, row.NextLeaseID, row.NextFence, row.NextRemaining)
	next.Unconfirmed, next.Sleeps = row.WaitsForStandby, row.SessionPid > 0
	return end, next
}
