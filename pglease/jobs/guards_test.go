package jobs_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

// locked holds the rows of jobs until the test is over.
func (b bench) locked(ids ...int64) (release func()) {
	b.tb.Helper()
	tx, err := b.pool.Begin(b.tb.Context())
	if err != nil {
		b.tb.Fatal(err)
	}
	release = func() { _ = tx.Rollback(b.tb.Context()) }
	if _, err := tx.Exec(b.tb.Context(), "SELECT FROM pglease.job WHERE id = ANY($1) FOR UPDATE", ids); err != nil {
		b.tb.Fatal(err)
	}
	return release
}

// Claimers, heartbeats and reapers pass by what is locked, and change nothing else than they may.
func TestLockedRowsAreSkipped(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	all := b.enqueue(jobs.Job{}, jobs.Job{}, jobs.Job{}, jobs.Job{})
	release := b.locked(all[0])
	claims := b.claim(2)
	if got := ids(claims); !slices.Equal(got, all[1:3]) {
		t.Errorf("claimed %v, want %v", got, all[1:3])
	}
	release()

	release = b.locked(all[1])
	b.exec("UPDATE pglease.job SET expires_at = clock_timestamp() + interval '1 second' WHERE id = $1", all[2])
	if err := b.Extend(t.Context(), claims...); err != nil {
		t.Errorf("a locked claim is not over: %v", err)
	}
	if left := value[float64](b, "SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 FROM pglease.job WHERE id = $1", all[2]); left < 5 {
		t.Errorf("the other one has %v s", left)
	}
	b.exec("UPDATE pglease.job SET expires_at = clock_timestamp() - interval '1 second' WHERE id = $1", all[2])
	if n, err := b.Tend(t.Context()); err != nil || n != 1 {
		t.Errorf("reaped %d, %v", n, err)
	}
	release()
	b.is(all[1], jobs.Running)
	if n, err := b.Tend(t.Context()); err != nil || n != 0 {
		t.Errorf("reaped %d claims that have time, %v", n, err)
	}
}

// A claim whose time is over is a claim until somebody has taken the job: the row decides.
func TestExpiredClaimMayEndItsJob(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	id := b.enqueue(jobs.Job{})[0]
	c := b.one()
	b.exec("UPDATE pglease.job SET expires_at = clock_timestamp() - interval '1 second'")
	b.done(c)
	if n, err := b.Tend(t.Context()); err != nil || n != 0 {
		t.Errorf("reaped %d, %v", n, err)
	}
	b.is(id, jobs.Done)
}

// Each guard of the statements, alone against an argument that is right in all else, touches no row.
func TestGuards(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.enqueue(jobs.Job{})
	c := b.one()
	s, err := schema.New("")
	if err != nil {
		t.Fatal(err)
	}
	q, db := jobsdb.New(), s.On(b.pool)
	id, fence := c.ID, c.Token().Fence()
	for name, pair := range map[string][2]int64{"older fence": {id, fence - 1}, "newer fence": {id, fence + 1}, "another job": {id + 1, fence}} {
		ids, fences := []int64{pair[0]}, []int64{pair[1]}
		_, one := q.CompleteOne(t.Context(), db, jobsdb.CompleteOneParams{ID: pair[0], Fence: pair[1]})
		_, fail := q.Fail(t.Context(), db, jobsdb.FailParams{ID: pair[0], Fence: pair[1]})
		rows, both := q.CompleteAndClaim(t.Context(), db, jobsdb.CompleteAndClaimParams{ID: pair[0], Fence: pair[1], Queue: queue, MaxJobs: 1, Froms: beginning})
		if both != nil || len(rows) != 1 || rows[0].Ended || rows[0].ID != 0 {
			t.Errorf("%s: complete and claim %+v, %v", name, rows, both)
		}
		if !errors.Is(one, pgx.ErrNoRows) || !errors.Is(fail, pgx.ErrNoRows) {
			t.Errorf("%s: complete %v, fail %v", name, one, fail)
		}
		done, err1 := q.Complete(t.Context(), db, jobsdb.CompleteParams{Ids: ids, Fences: fences})
		back, err2 := q.PutBack(t.Context(), db, jobsdb.PutBackParams{Ids: ids, Fences: fences})
		extended, err3 := q.Extend(t.Context(), db, jobsdb.ExtendParams{Ids: ids, Fences: fences, TTL: time.Hour})
		if err := errors.Join(err1, err2, err3); err != nil || len(done)+len(back)+len(extended) != 0 {
			t.Errorf("%s: %v %v %v %v", name, done, back, extended, err)
		}
	}
	if err := q.FreeKeys(t.Context(), db, []int64{id}); err != nil {
		t.Error(err)
	}
	if retried, err := q.Retry(t.Context(), db, []int64{id}); err != nil || len(retried) != 0 {
		t.Errorf("retried %v, %v", retried, err)
	}
	if dropped, err := q.Drop(t.Context(), db, []int64{id}); err != nil || len(dropped) != 0 {
		t.Errorf("dropped %v, %v", dropped, err)
	}
	if _, err := q.BeginOnce(t.Context(), db, "k"); err != nil {
		t.Error(err)
	}
	if _, err := q.EndOnce(t.Context(), db, jobsdb.EndOnceParams{Key: "k", Result: "1"}); err != nil {
		t.Error(err)
	}
	if _, err := q.EndOnce(t.Context(), db, jobsdb.EndOnceParams{Key: "k", Result: "2"}); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("a second result: %v", err)
	}
	if err := q.ForgetOnce(t.Context(), db, "k"); err != nil || value[int](b, "SELECT count(*) FROM pglease.job_once") != 1 {
		t.Errorf("a result was forgotten: %v", err)
	}
	b.is(id, jobs.Running)
	b.done(c)
}

// Nobody is rung who does not wait, or was not heard of.
func TestOnlyWaitingWorkersAreRung(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	s, err := schema.New("")
	if err != nil {
		t.Fatal(err)
	}
	rung := func() int {
		rows, err := jobsdb.New().Ring(t.Context(), s.On(b.pool), jobsdb.RingParams{Queue: queue, MaxWorkers: 10})
		if err != nil {
			t.Fatal(err)
		}
		return len(rows)
	}
	b.exec(`INSERT INTO pglease.job_bell (worker_id, queue, waits, seen_at) VALUES
		(gen_random_uuid(), $1, true, clock_timestamp()), (gen_random_uuid(), $1, false, clock_timestamp()),
		(gen_random_uuid(), $1, true, clock_timestamp() - interval '2 minutes'), (gen_random_uuid(), 'another', true, clock_timestamp())`, queue)
	if n := rung(); n != 1 {
		t.Errorf("rang %d", n)
	}
	if n := rung(); n != 0 {
		t.Errorf("rang %d that were rung", n)
	}
}

// A heartbeat changes nothing that an index holds, so it is a HOT update: no index grows by it.
func TestHeartbeatsAreHOT_T7(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.enqueue(make([]jobs.Job, 5)...)
	claims := b.claim(5)
	p := jobsdb.ExtendParams{TTL: time.Hour}
	for _, c := range claims {
		p.Ids, p.Fences = append(p.Ids, c.ID), append(p.Fences, c.Token().Fence())
	}
	s, err := schema.New("")
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		// The counters are of the session, until it sends them off.
		const counters = `
SELECT pg_stat_get_xact_tuples_updated('pglease.job'::regclass), pg_stat_get_xact_tuples_hot_updated('pglease.job'::regclass)`
		var updated, hot, updatedBefore, hotBefore int
		before := tx.QueryRow(t.Context(), counters).Scan(&updatedBefore, &hotBefore)
		_, extended := jobsdb.New().Extend(t.Context(), s.On(tx), p)
		after := tx.QueryRow(t.Context(), counters).Scan(&updated, &hot)
		if updated-updatedBefore != 5 || hot-hotBefore != 5 {
			t.Errorf("%d rows were updated, %d of them HOT", updated-updatedBefore, hot-hotBefore)
		}
		return errors.Join(before, extended, after)
	})
	if err != nil {
		t.Fatal(err)
	}
}
