package demo

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

// A store is the report store as a worker uses it: all of it but the write is the same in both
// modes.
type store struct {
	*reportstore.Store
	write func(ctx context.Context, token fence.Token, body []byte, version int64) (written, error)
}

// written is what a write came to.
type written struct {
	outcome string
	version int64
	text    string // why it was refused
}

func newStore(pool *pgxpool.Pool, w Worker) (store, error) {
	reports, err := reportstore.New(pool, reportstore.Config{Schema: w.Schema, Owner: w.Name})
	if err != nil {
		return store{}, err
	}
	in, err := schema.New(w.Schema)
	if err != nil {
		return store{}, err
	}
	s := store{Store: reports, write: fenced(reports, w.Report)}
	if w.Unfenced {
		s.write = unfenced(in.On(pool), w)
	}
	return s, nil
}

// fenced publishes as reportstore does: fence, version and change in one statement.
func fenced(reports *reportstore.Store, report string) func(context.Context, fence.Token, []byte, int64) (written, error) {
	return func(ctx context.Context, token fence.Token, body []byte, version int64) (written, error) {
		published, err := reports.Publish(ctx, token, reportstore.Report{ID: report, Body: body, ExpectedVersion: version})
		var stale *reportstore.StaleOwnerError
		switch {
		case errors.As(err, &stale):
			return written{outcome: resultStaleOwner, version: stale.Version, text: stale.Error()}, nil
		case errors.Is(err, reportstore.ErrConflict):
			return written{outcome: resultConflict, text: err.Error()}, nil
		case err != nil:
			return written{}, err
		}
		return written{outcome: resultApplied, version: published.Version}, nil
	}
}

// unfencedUpdate is what a program without fencing sends. It names its fence and its lease, so that
// the report's history can tell who wrote; it compares neither with anything.
const unfencedUpdate = `UPDATE /*schema.*/reports
SET body = $2, version = version + 1, written_fence = $3, written_lease_id = $4, written_owner_id = $5
WHERE report_id = $1
RETURNING version`

func unfenced(db schema.DBTX, w Worker) func(context.Context, fence.Token, []byte, int64) (written, error) {
	return func(ctx context.Context, token fence.Token, body []byte, _ int64) (written, error) {
		result := written{outcome: resultApplied}
		err := db.QueryRow(ctx, unfencedUpdate, w.Report, body, token.Fence(), [16]byte(token.LeaseID()), w.Name).Scan(&result.version)
		return result, err
	}
}
