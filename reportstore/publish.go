package reportstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore/internal/reportdb"
)

// Publish makes r.Body the content of the report, in one statement that also checks the token and
// the version. The error matches
//
//   - fence.ErrStaleOwner (a *StaleOwnerError) where the report has seen a newer token, or another
//     lease's token with the same fence: nothing was changed, and the refusal was recorded;
//   - ErrConflict (a *ConflictError) where the token is good and the version is not the expected
//     one: the content was not changed, the refusal was recorded, and a token that is newer than
//     the watermark has raised it;
//   - fence.ErrInvalidResource, fence.ErrInvalidToken, fence.ErrOtherResource or ErrInvalidReport
//     where the arguments cannot be right: nothing was sent;
//   - ErrSchema where the tables are missing: nothing was written.
//
// After any other error, the end of ctx included, the publication may have been applied or not.
// Repeat the call with the same token, content and expected version: if it was applied, the answer
// is that publication, with Repeated set. A call with the content that the report holds counts as
// such a repetition where the same lease wrote it and the expected version is the present one, the
// one before, or AnyVersion.
//
// Publish is a transaction of its own. It does not fail by serialization, whatever the default
// isolation level is.
func (s *Store) Publish(ctx context.Context, token fence.Token, r Report) (Publication, error) {
	p, err := s.prepare(token, r)
	if err == nil {
		err = s.alone(ctx, func(db reportdb.DBTX) error { return p.run(ctx, db) })
	}
	return p.answer(err)
}

// PublishTx is Publish within the caller's transaction: the publication counts when that commits,
// together with all else in it. Until then it holds the report's row, and others who publish it
// wait; so publish last, and commit soon.
//
// A refusal leaves the transaction usable. It is recorded within the transaction, and so is a
// watermark that rose: both are lost if the caller rolls back. No failing statement is provoked in
// it on purpose. Above READ COMMITTED a serialization failure (SQLSTATE 40001) can end the
// transaction and goes to the caller, who runs the whole of it again.
func (s *Store) PublishTx(ctx context.Context, tx pgx.Tx, token fence.Token, r Report) (Publication, error) {
	p, err := s.prepare(token, r)
	if err == nil {
		err = p.run(ctx, s.schema.On(tx))
	}
	return p.answer(err)
}

// An attempt is one call of Publish under way.
type attempt struct {
	store *Store
	token fence.Token
	write reportdb.ReplaceParams
	row   reportdb.SettleRow // the answer
}

func (s *Store) prepare(token fence.Token, r Report) (*attempt, error) {
	p := &attempt{store: s, token: token}
	p.write.ReportID = r.ID
	if err := r.check(token); err != nil {
		return p, err
	}
	hash := sha256.Sum256(r.Body)
	body := r.Body
	if body == nil {
		body = []byte{} // pgx sends nil as NULL
	}
	p.write = reportdb.ReplaceParams{
		ReportID:        r.ID,
		Body:            body,
		ContentHash:     hash[:],
		ExpectedVersion: r.ExpectedVersion,
		Fence:           token.Fence(),
		LeaseID:         leaseID(token),
		OwnerID:         cmp.Or(r.Owner, s.owner),
	}
	return p, nil
}

// run publishes, or finds out why not. The conditional UPDATE alone decides about a report that
// exists; what it leaves, Settle settles. When Settle says again, a rival has acted between the
// two. In one transaction under READ COMMITTED that happens at most twice: once because a rival
// created the report, once because it acted before Settle had locked the row.
func (p *attempt) run(ctx context.Context, db reportdb.DBTX) error {
	for range 3 {
		done, err := p.store.queries.Replace(ctx, db, p.write)
		if err == nil {
			p.row = reportdb.SettleRow{Result: applied, Version: done.Version, PublishedAt: done.PublishedAt}
			return nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		p.row, err = p.store.queries.Settle(ctx, db, p.settle())
		if err == nil && p.row.Result != again {
			return nil
		}
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
	}
	return errRivals
}

func (p *attempt) settle() reportdb.SettleParams {
	return reportdb.SettleParams{
		ReportID:        p.write.ReportID,
		Fence:           p.write.Fence,
		LeaseID:         p.write.LeaseID,
		ContentHash:     p.write.ContentHash,
		ExpectedVersion: p.write.ExpectedVersion,
		OwnerID:         p.write.OwnerID,
		Body:            p.write.Body,
	}
}

// answer turns the row into what the caller is told.
func (p *attempt) answer(err error) (Publication, error) {
	if err == nil {
		switch p.row.Result {
		case applied, repeated:
			return Publication{
				Version:     p.row.Version,
				PublishedAt: p.row.PublishedAt,
				Hash:        [sha256.Size]byte(p.write.ContentHash),
				Repeated:    p.row.Result == repeated,
			}, nil
		case staleOwner:
			err = stale(p.token, p.row.GreatestFence, p.row.GreatestLeaseID, p.row.GreatestOwnerID, p.row.Version)
		case conflict:
			err = &ConflictError{Expected: p.write.ExpectedVersion, Actual: p.row.Version}
		default:
			err = fmt.Errorf("unknown answer %q", p.row.Result)
		}
	}
	return Publication{}, p.store.wrap("publish", p.write.ReportID, err)
}
