package reportstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/fencetest"
	"github.com/pglease/pglease/reportstore"
)

// conforming returns a report as the suite sees a resource: its commands are the bodies of the
// versions.
func conforming(t *testing.T) fencetest.Resource {
	t.Helper()
	pool, store := setUp(t)
	report := func(token fence.Token, c fencetest.Command) reportstore.Report {
		return reportstore.Report{ID: token.Resource(), Body: []byte(c.ID), ExpectedVersion: reportstore.AnyVersion}
	}
	return fencetest.Resource{
		Name:    july,
		Repeats: true,
		Write: func(ctx context.Context, token fence.Token, c fencetest.Command) error {
			_, err := store.Publish(ctx, token, report(token, c))
			return err
		},
		Establish: func(ctx context.Context, token fence.Token) error { return store.Establish(ctx, token, july) },
		Crash: func(ctx context.Context, token fence.Token, c fencetest.Command) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := store.PublishTx(ctx, tx, token, report(token, c))
				return errors.Join(err, fmt.Errorf("died: %w", tx.Conn().PgConn().Conn().Close()))
			})
		},
		History: func(ctx context.Context) ([]fencetest.Entry, error) {
			versions, err := store.History(ctx, july)
			if err != nil {
				return nil, err
			}
			entries := make([]fencetest.Entry, len(versions))
			for i, v := range versions {
				published, err := store.ReadVersion(ctx, july, v.Number)
				if err != nil {
					return nil, err
				}
				entries[i] = fencetest.Entry{Command: string(published.Body), Fence: v.Fence, LeaseID: v.LeaseID}
			}
			return entries, nil
		},
	}
}

func TestReportsConform(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, conforming)
}

// What a report refuses is told in the words of package fence too.
func TestStaleOwnerInTheWordsOfFence(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	publish(t, store, token(t, 42), "one", 0, 1)
	_, err := store.Publish(t.Context(), token(t, 41), reportstore.Report{ID: july, ExpectedVersion: 1})
	stale := fence.AsStale(err)
	if stale == nil || stale.Resource != july || stale.Fence != 41 || stale.GreatestFence != 42 || stale.GreatestOwner != "W42" ||
		stale.LeaseID != token(t, 41).LeaseID() || stale.GreatestLeaseID != token(t, 42).LeaseID() {
		t.Errorf("got %v: %+v", err, stale)
	}
}
