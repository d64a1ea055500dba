package reportstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore/internal/reportdb"
)

// Published is a report's content in one version, and who wrote it.
type Published struct {
	ID      string
	Version int64 // from 1, without gaps
	Body    []byte
	Hash    [sha256.Size]byte // SHA-256 of Body, computed by the database

	// Fence, LeaseID and Owner are what the writer named. A statement that did not come from a
	// Store may have named others than its own, or none: zero values.
	Fence   int64
	LeaseID fence.LeaseID
	Owner   string

	// GreatestFence is the watermark: now, as Read returns it; when the version was written, as
	// ReadVersion does.
	GreatestFence int64

	PublishedAt time.Time // by the database's clock
}

// Read returns the report as it is. The error matches ErrNotFound where nothing was published.
// What is read may be replaced a moment later: pass its Version as the ExpectedVersion of a
// publication that builds on it.
func (s *Store) Read(ctx context.Context, reportID string) (Published, error) {
	row, err := read(reportID, func() (reportdb.ReadRow, error) {
		return s.queries.Read(ctx, s.schema.On(s.pool), reportID)
	})
	if err != nil {
		return Published{}, s.wrap("read", reportID, err)
	}
	return asPublished(reportID, reportdb.ReadVersionRow(row)), nil
}

// ReadVersion returns one version of the report, as it was accepted. The error matches ErrNotFound
// where there is no such version, or it was pruned; its text tells whether there is a report.
func (s *Store) ReadVersion(ctx context.Context, reportID string, version int64) (Published, error) {
	row, err := read(reportID, func() (reportdb.ReadVersionRow, error) {
		return s.queries.ReadVersion(ctx, s.schema.On(s.pool), reportdb.ReadVersionParams{ReportID: reportID, Version: version})
	})
	if errors.Is(err, ErrNotFound) {
		err = s.noVersion(ctx, reportID, version)
	}
	if err != nil {
		return Published{}, s.wrap("read", reportID, err)
	}
	return asPublished(reportID, row), nil
}

// A versionError matches ErrNotFound: there is a report, and not in this version.
type versionError struct{ missing, last int64 }

func (e versionError) Error() string {
	return fmt.Sprintf("version %d not found, the report is at version %d", e.missing, e.last)
}

func (versionError) Is(target error) bool { return target == ErrNotFound }

// noVersion says what exactly is missing.
func (s *Store) noVersion(ctx context.Context, reportID string, version int64) error {
	seen, err := s.queries.Watermark(ctx, s.schema.On(s.pool), reportID)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || (err == nil && seen.Version == 0):
		return ErrNotFound
	case err != nil:
		return err
	}
	return versionError{version, seen.Version}
}

// A Watermark is the newest token that a report has accepted, and whose it was.
type Watermark struct {
	Fence   int64
	LeaseID fence.LeaseID
	Owner   string    // may be empty
	Since   time.Time // when it was accepted first, by the database's clock
	Version int64     // the report's version now; 0 where it was established and not yet published
}

// Watermark returns the watermark of a report, published or only established. The error matches
// ErrNotFound where the report has seen no token.
func (s *Store) Watermark(ctx context.Context, reportID string) (Watermark, error) {
	row, err := read(reportID, func() (reportdb.WatermarkRow, error) {
		return s.queries.Watermark(ctx, s.schema.On(s.pool), reportID)
	})
	if err != nil {
		return Watermark{}, s.wrap("watermark", reportID, err)
	}
	return Watermark{
		Fence:   row.GreatestFence,
		LeaseID: row.GreatestLeaseID.Bytes,
		Owner:   row.GreatestOwnerID,
		Since:   row.GreatestAt,
		Version: row.Version,
	}, nil
}

func read[T any](reportID string, query func() (T, error)) (T, error) {
	var none T
	if err := fence.CheckResource(reportID); err != nil {
		return none, err
	}
	row, err := query()
	if errors.Is(err, pgx.ErrNoRows) {
		return none, ErrNotFound
	}
	return row, err
}

func asPublished(reportID string, row reportdb.ReadVersionRow) Published {
	p := Published{
		ID:            reportID,
		Version:       row.Version,
		Body:          row.Body,
		Fence:         row.Fence,
		LeaseID:       row.LeaseID.Bytes,
		Owner:         row.OwnerID,
		GreatestFence: row.GreatestFence,
		PublishedAt:   row.PublishedAt,
	}
	copy(p.Hash[:], row.ContentHash)
	return p
}
