package reportstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore/internal/reportdb"
)

// Establish raises the report's watermark to the token and changes nothing else. Call it when the
// lease was granted, before the work is begun: from then on no write of an earlier owner is
// accepted, so what is read after it stays as it is until this owner changes it. Without it, an
// earlier owner may publish until this one does.
//
// A report that was never published may be established too; it still is not found by Read.
// Establishing again is harmless.
//
// The error matches fence.ErrStaleOwner where the report has seen a newer token: the caller's lease
// is over. It is recorded like a refused publication. Invalid arguments are answered as by Publish.
func (s *Store) Establish(ctx context.Context, token fence.Token, reportID string) error {
	if err := s.establish(ctx, token, reportID); err != nil {
		return s.wrap("establish", reportID, err)
	}
	return nil
}

func (s *Store) establish(ctx context.Context, token fence.Token, reportID string) error {
	if err := check(token, reportID); err != nil {
		return err
	}
	params := reportdb.EstablishParams{ReportID: reportID, Fence: token.Fence(), LeaseID: leaseID(token), OwnerID: s.owner}
	var row reportdb.EstablishRow
	err := s.alone(ctx, func(db reportdb.DBTX) (err error) {
		row, err = s.queries.Establish(ctx, db, params)
		if errors.Is(err, pgx.ErrNoRows) {
			return errRivals
		}
		return err
	})
	if err == nil && row.Result == staleOwner {
		err = stale(token, row.GreatestFence, row.GreatestLeaseID, row.GreatestOwnerID, row.Version)
	}
	return err
}
