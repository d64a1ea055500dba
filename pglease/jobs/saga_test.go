package jobs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// deadlySaga kills the process in each of its steps once, before or after the step was committed.
func deadlySaga(ctx context.Context, pool *pgxpool.Pool, c *jobs.Claim) error {
	dieOnce := func(n int) error { // once for each n, however many attempts there were
		// A claim that is lost in this moment must not leave a death on record that nobody died.
		tag, err := pool.Exec(context.WithoutCancel(ctx), "INSERT INTO death VALUES ($1) ON CONFLICT DO NOTHING", n)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return die()
	}
	steps := []step{
		{"one", noting("one", nil), noting("one undone", nil)},
		{"two", func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(noting("two", nil)(ctx, tx), dieOnce(1))
		}, noting("two undone", nil)},
		{"three", func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(dieOnce(2), noting("three", errRefused)(ctx, tx))
		}, nil},
	}
	steps[0].undo = func(ctx context.Context, tx pgx.Tx) error {
		return errors.Join(noting("one undone", nil)(ctx, tx), dieOnce(3))
	}
	_, err := saga(ctx, pool, "saga/"+c.Partition, steps)
	return err
}

// A saga goes on where it was killed: each step and each compensation is done once.
func TestSagaSurvivesKills(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t, migrations.Jobs)
	b := setUpOn(t, pools.Open(t, url, pools.Conns(4)))
	b.exec(journalTable)
	b.exec("CREATE TABLE death (n int PRIMARY KEY)")
	// On a busy machine a claim of a second may be cut off, and each attempt counts.
	id := b.enqueue(jobs.Job{Partition: "journey/7", MaxAttempts: 10_000})[0]
	for range 3 {
		startWorker(t, url, time.Second).died(b, id)
	}
	startWorker(t, url, time.Second)
	if info := b.eventually(id, jobs.Done); info.Attempt < 4 {
		t.Errorf("got %+v", info)
	}
	want := []string{"one", "two", "two undone", "one undone"}
	if got := journal(t.Context(), b.pool); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
