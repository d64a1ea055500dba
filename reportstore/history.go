package reportstore

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore/internal/reportdb"
)

// A Version is one entry of a report's history: all but the body, which ReadVersion returns.
type Version struct {
	Number int64 // from 1, without gaps
	Size   int64 // of the body, in bytes
	Hash   [sha256.Size]byte

	// Fence, LeaseID and Owner are what the writer named; see Published.
	Fence   int64
	LeaseID fence.LeaseID
	Owner   string

	// GreatestFence is the watermark when the version was written. A Store never writes a version
	// whose Fence is below it.
	GreatestFence int64

	PublishedAt time.Time // by the database's clock
}

// History returns every version that the report has had, the oldest first, whoever wrote it: the
// database itself keeps the record. It is empty where nothing was published.
func (s *Store) History(ctx context.Context, reportID string) ([]Version, error) {
	rows, err := read(reportID, func() ([]reportdb.HistoryRow, error) {
		return s.queries.History(ctx, s.schema.On(s.pool), reportID)
	})
	if err != nil {
		return nil, s.wrap("history", reportID, err)
	}
	versions := make([]Version, len(rows))
	for i, row := range rows {
		versions[i] = Version{
			Number:        row.Version,
			Size:          row.Size,
			Fence:         row.Fence,
			LeaseID:       row.LeaseID.Bytes,
			Owner:         row.OwnerID,
			GreatestFence: row.GreatestFence,
			PublishedAt:   row.PublishedAt,
		}
		copy(versions[i].Hash[:], row.ContentHash)
	}
	return versions, nil
}

// Regressions returns the versions of a history that an earlier owner wrote over a later one's
// work: those whose fence is lower than one that the report had accepted, or equal to it and of
// another lease. There are none where every write came through a Store. The history is expected
// as History returns it.
func Regressions(history []Version) []Version {
	var found []Version
	var greatest Version
	for _, v := range history {
		stale := v.Fence < v.GreatestFence || v.Fence < greatest.Fence ||
			(v.Fence == greatest.Fence && v.LeaseID != greatest.LeaseID)
		if stale {
			found = append(found, v)
			continue
		}
		greatest = v
	}
	return found
}

// MaxRejections is how many refusals Rejections returns at most.
const MaxRejections = 1000

// A Rejection is the record of one write that was refused, and of what stood against it.
type Rejection struct {
	// Err is fence.ErrStaleOwner or ErrConflict.
	Err error

	// Fence, LeaseID and Owner are those of the write that was refused.
	Fence   int64
	LeaseID fence.LeaseID
	Owner   string

	// Greatest is the watermark that the write met, and Greatest.Version the version.
	Greatest Watermark

	// ExpectedVersion is what the write expected; AnyVersion where it expected none, as Establish.
	ExpectedVersion int64

	RejectedAt time.Time // by the database's clock
}

// Late is how long after the report had accepted the newer token the write arrived: the time by
// which a stale owner outlived its lease, as far as the report can tell.
func (r Rejection) Late() time.Duration { return r.RejectedAt.Sub(r.Greatest.Since) }

// Rejections returns the last writes of a report that were refused, the newest first, at most
// MaxRejections. A stale owner among them proves that fencing was needed: some process worked on
// without its lease.
func (s *Store) Rejections(ctx context.Context, reportID string) ([]Rejection, error) {
	rows, err := read(reportID, func() ([]reportdb.RejectionsRow, error) {
		return s.queries.Rejections(ctx, s.schema.On(s.pool), reportdb.RejectionsParams{ReportID: reportID, MaxRows: MaxRejections})
	})
	if err != nil {
		return nil, s.wrap("rejections", reportID, err)
	}
	rejections := make([]Rejection, len(rows))
	for i, row := range rows {
		rejections[i] = asRejection(row)
	}
	return rejections, nil
}

func asRejection(row reportdb.RejectionsRow) Rejection {
	r := Rejection{
		Err:     ErrConflict,
		Fence:   row.Fence,
		LeaseID: row.LeaseID.Bytes,
		Owner:   row.OwnerID,
		Greatest: Watermark{
			Fence:   row.GreatestFence,
			LeaseID: row.GreatestLeaseID.Bytes,
			Owner:   row.GreatestOwnerID,
			Since:   row.GreatestAt,
			Version: row.ActualVersion,
		},
		ExpectedVersion: row.ExpectedVersion,
		RejectedAt:      row.RejectedAt,
	}
	if row.Result == staleOwner {
		r.Err = fence.ErrStaleOwner
	}
	return r
}
