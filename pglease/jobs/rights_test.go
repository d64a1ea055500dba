package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/docrights"
	"github.com/pglease/pglease/pglease/jobs"
)

// limited returns a client with the rights of the docs under a heading and no others.
func (b bench) limited(t *testing.T, heading string) bench {
	t.Helper()
	pool, _ := docrights.Pool(t, b.pool, heading)
	return setUpOn(t, pool)
}

func TestTheRightsForJobsAreEnough(t *testing.T) {
	t.Parallel()
	owner := setUp(t)
	b := owner.limited(t, "jobs: enqueue and work")
	if err := b.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	b.enqueue(jobs.Job{Unique: jobs.Unique{Key: "k", For: time.Millisecond}}, jobs.Job{}, jobs.Job{MaxAttempts: 1}, in("a"), in("a"), jobs.Job{Partition: "a"})
	claims := b.claim(3)
	if err := b.Extend(t.Context(), claims...); err != nil {
		t.Error(err)
	}
	if err := b.Return(t.Context(), claims[1]); err != nil {
		t.Error(err)
	}
	parked := claims[2]
	if state, err := b.Fail(t.Context(), parked, jobs.Failure{Reason: "no"}); err != nil || state != jobs.Parked {
		t.Error(state, err)
	}
	owner.exec("UPDATE pglease.job SET unique_until = clock_timestamp() WHERE unique_key = 'k'")
	next, err := b.CompleteAndClaim(t.Context(), claims[0], 1)
	if err != nil {
		t.Error(err)
	}
	b.done(next...)
	b.enqueue(jobs.Job{Unique: jobs.Unique{Key: "k"}}) // frees a key that was kept for a time
	owner.exec("UPDATE pglease.job SET expires_at = clock_timestamp() - interval '1 second' WHERE state = 'running'")
	if _, err := b.Tend(t.Context()); err != nil {
		t.Error(err)
	}
	for _, step := range []func() error{
		func() error { return b.Retry(t.Context(), parked.ID) },
		func() error { return b.Drop(t.Context(), parked.ID) },
		func() error { _, err := b.Prune(t.Context(), 0); return err },
		func() error { return b.Ring(t.Context(), queue) },
		func() error { _, err := b.Count(t.Context(), queue); return err },
		func() error { _, err := b.Parked(t.Context(), queue, 0, 10); return err },
	} {
		if err := step(); err != nil {
			t.Error(err)
		}
	}
	rings(t, b)
}

// rings runs a worker until it has done all there is and waits at the bell, and rings it once.
func rings(t *testing.T, b bench) {
	t.Helper()
	var r record
	stop := works(t, b.pool, jobs.Config{PollEvery: hours, Observer: &r}, func(context.Context, *jobs.Claim) error { return nil })
	until(t, "the worker has nothing to do", func() bool {
		return value[bool](b, "SELECT EXISTS (SELECT FROM pglease.job_bell WHERE waits)") &&
			value[int64](b, "SELECT count(*) FROM pglease.job WHERE state NOT IN ('done', 'dropped')") == 0
	})
	b.eventually(b.enqueue(jobs.Job{})[0], jobs.Done)
	stop()
	if e, ok := r.find(jobs.EventError); ok {
		t.Error(e.Err)
	}
	if value[int64](b, "SELECT count(*) FROM pglease.job_bell") != 0 {
		t.Error("the worker is still at the bell")
	}
}

// Who may only enqueue does so in every way, and can do nothing to a job.
func TestTheRightsToEnqueueAreEnough(t *testing.T) {
	t.Parallel()
	owner := setUp(t)
	b := owner.limited(t, "jobs: enqueue")
	if err := b.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	b.enqueue(jobs.Job{}, in("a"), jobs.Job{Unique: jobs.Unique{Key: "k", For: time.Hour}})
	owner.done(owner.claim(10)...)
	owner.exec("UPDATE pglease.job SET unique_until = clock_timestamp() WHERE unique_key = 'k'")
	if id := b.enqueue(jobs.Job{Unique: jobs.Unique{Key: "k"}})[0]; owner.one().ID != id {
		t.Error("the key was not freed")
	}
	owner.exec("INSERT INTO pglease.job_bell (worker_id, queue, waits) VALUES (gen_random_uuid(), $1, true)", queue)
	b.enqueue(jobs.Job{})
	if value[bool](owner, "SELECT waits FROM pglease.job_bell") {
		t.Error("the waiting worker was not rung")
	}
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		_, err := b.EnqueueTx(t.Context(), tx, jobs.Job{Queue: queue})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if _, err = b.Claim(t.Context(), queue, 1); !docrights.IsForbidden(err) {
		t.Errorf("a claim without the right: %v", err)
	}
	claim := owner.one()
	for _, err := range []error{b.Complete(t.Context(), claim), b.Extend(t.Context(), claim), b.Drop(t.Context(), claim.ID)} {
		if !docrights.IsForbidden(err) {
			t.Errorf("the end of a job without the right: %v", err)
		}
	}
}

func TestTheRightsForOnceAndOutboxesAreEnough(t *testing.T) {
	t.Parallel()
	owner := setUp(t)
	b := owner.limited(t, "jobs: once and outbox")
	for i := range 2 {
		err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			got, repeated, err := jobs.Once(t.Context(), tx, "k", func(context.Context, pgx.Tx) (int, error) { return 7, nil })
			if got != 7 || repeated != (i == 1) {
				t.Errorf("got %d, repeated %v", got, repeated)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := b.PruneOnce(t.Context(), 0); err != nil {
		t.Error(err)
	}
	outbox, err := b.Outbox(outboxName)
	if err != nil {
		t.Fatal(err)
	}
	p := &post{bench: b, outbox: outbox, delivered: map[string][]string{}}
	p.committed(jobs.Message{Key: "k", Body: []byte("1")})
	if n, err := p.relay(1).Run(t.Context(), 10, p.publish); err != nil || n != 1 {
		t.Errorf("relayed %d, %v", n, err)
	}
	if n, err := outbox.Prune(t.Context(), 0); err != nil || n != 1 {
		t.Errorf("pruned %d, %v", n, err)
	}
}
