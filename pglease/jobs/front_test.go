package jobs_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// since remembers where the last statement that claims began.
type since struct {
	mu    sync.Mutex
	last  []time.Time
	whole func() // called for each that begins at the beginning
}

func (s *since) wholes(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole = f
}

func (s *since) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	for _, arg := range query.Args {
		from, ok := arg.([]time.Time)
		if !ok || len(from) != len(beginning) {
			continue
		}
		s.mu.Lock()
		s.last = slices.Clone(from)
		whole := s.whole
		s.mu.Unlock()
		if whole != nil && slices.Equal(from, beginning) {
			whole()
		}
	}
	return ctx
}

func (s *since) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *since) beginning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Equal(s.last, beginning)
}

func setUpTraced(t *testing.T) (bench, *since) {
	t.Helper()
	tracer := &since{}
	pool := pools.Open(t, pgleasetest.URL(t, migrations.Jobs), func(c *pgxpool.Config) { c.ConnConfig.Tracer = tracer })
	return setUpOn(t, pool), tracer
}

// What was claimed and completed since the last vacuum costs the next claim nothing.
func TestClaimsDoNotWalkOverWhatWasClaimed(t *testing.T) {
	t.Parallel()
	b, tracer := setUpTraced(t)
	b.exec("ALTER TABLE pglease.job SET (autovacuum_enabled = off)")
	b.exec(`INSERT INTO pglease.job (queue, state, max_attempts, payload) SELECT $1, 'ready', 3, '{}' FROM generate_series(1, 20200)`, queue)
	walked := func(from []time.Time) int {
		t.Helper()
		plan := b.explain("force_generic_plan", func(q *jobsdb.Queries, db jobsdb.DBTX) error {
			_, err := q.Claim(t.Context(), db, jobsdb.ClaimParams{Queue: queue, MaxJobs: 1, WorkerID: "w", TTL: time.Minute, Froms: from})
			return err
		})
		return buffers(t, plan)
	}
	fresh := walked(beginning)
	var all []*jobs.Claim
	for len(all) < 20_000 || tracer.beginning() {
		claims := b.claim(min(100, max(1, 20_000-len(all))))
		b.done(claims...)
		all = append(all, claims...)
		if len(all) > 20_100 {
			t.Fatal("claims began at the beginning each time")
		}
	}
	if n := walked(tracer.last); n > fresh+5 {
		t.Errorf("a claim touches %d pages, %d before any was claimed", n, fresh)
	}
	if n := walked(beginning); n < fresh+50 {
		t.Errorf("from the beginning it touches %d pages, %d before any was claimed: the test shows nothing", n, fresh)
	}
}

// A job that somebody else makes ready before what was claimed already is found while the queue is busy.
func TestAJobBeforeTheFrontIsFound(t *testing.T) {
	t.Parallel()
	b, tracer := setUpTraced(t)
	b.exec(`INSERT INTO pglease.job (queue, state, max_attempts, payload) SELECT $1, 'ready', 3, '{}' FROM generate_series(1, 20000)`, queue)
	for b.one(); tracer.beginning(); {
		b.one()
	}
	late := value[int64](b, `INSERT INTO pglease.job (queue, state, max_attempts, payload, run_at)
		VALUES ($1, 'ready', 3, '{}', clock_timestamp() - interval '1 day') RETURNING id`, queue)
	for n := 1; b.one().ID != late; n++ {
		if n == 19_000 {
			t.Fatal("it was passed for ever")
		}
	}
}

// Looking from the beginning takes a tenth of the time at most, however long it takes, and one of many
// workers does it.
func TestALongLookIsRare(t *testing.T) {
	t.Parallel()
	b, tracer := setUpTraced(t)
	b.exec(`INSERT INTO pglease.job (queue, state, max_attempts, payload) SELECT $1, 'ready', 3, '{}' FROM generate_series(1, 20000)`, queue)
	for b.one(); tracer.beginning(); {
		b.one()
	}
	// From now on the first look from the beginning takes as long as the test wants.
	looking, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var wholes atomic.Int64
	tracer.wholes(func() {
		if wholes.Add(1) == 1 {
			close(looking)
			<-goOn
		}
	})
	go func() {
		defer close(ended)
		for wholes.Load() == 0 {
			if _, err := b.Claim(t.Context(), queue, 1); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	<-looking
	began := time.Now()
	claimsFor := func(d time.Duration) {
		t.Helper()
		for until := time.Now().Add(d); time.Now().Before(until); {
			b.one()
		}
	}
	claimsFor(300 * time.Millisecond)
	if n := wholes.Load(); n != 1 && time.Since(began) < 5*time.Second {
		t.Errorf("%d began at the beginning while one did", n)
	}
	close(goOn)
	<-ended
	claimsFor(300 * time.Millisecond)
	if n := wholes.Load(); n != 1 && time.Since(began) < 2*time.Second {
		t.Errorf("%d began at the beginning, after one that took 300 ms", n)
	}
}

// One that the client itself puts there comes next, however it does that.
func TestWhatAClientPutsBeforeTheFrontComesNext(t *testing.T) {
	t.Parallel()
	b, tracer := setUpTraced(t)
	all := b.enqueue(make([]jobs.Job, 500)...)
	past := time.Now().Add(-time.Hour)
	busy := func() *jobs.Claim {
		t.Helper()
		c := b.one()
		for tracer.beginning() {
			c = b.one()
		}
		return c
	}
	first := b.one()
	busy()
	if err := b.Return(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if c := b.one(); c.ID != all[0] {
		t.Errorf("job %d came before the one that was returned", c.ID)
	}
	busy()
	if id := b.enqueue(jobs.Job{RunAt: past})[0]; b.one().ID != id {
		t.Error("another came before the one that is older")
	}
	busy()
	if id := b.enqueue(jobs.Job{Priority: 1})[0]; b.one().ID != id {
		t.Error("another came before the one of a higher priority")
	}
	last := busy()
	var id int64
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		receipts, err := b.EnqueueTx(t.Context(), tx, jobs.Job{Queue: queue, RunAt: past})
		if err == nil {
			id = receipts[0].ID
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if next, err := b.CompleteAndClaim(t.Context(), last, 1); err != nil || !slices.Equal(ids(next), []int64{id}) {
		t.Errorf("claimed %v, %v", ids(next), err)
	}
	busy()
	heads := b.enqueue(in("a"), in("a"))
	b.exec("UPDATE pglease.job SET run_at = $2 WHERE id = ANY($1)", heads, past)
	if _, err := b.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := b.one(); c.ID != heads[0] {
		t.Errorf("job %d came before the head of the partition", c.ID)
	}
}

// What is left is found at once by whoever finds too little behind the front.
func TestTooLittleBehindTheFront(t *testing.T) {
	t.Parallel()
	b, tracer := setUpTraced(t)
	b.enqueue(make([]jobs.Job, 300)...)
	for b.one(); tracer.beginning(); {
		b.one()
	}
	b.exec("DELETE FROM pglease.job WHERE state = 'ready'")
	want := value[int64](b, `INSERT INTO pglease.job (queue, state, max_attempts, payload, run_at)
		VALUES ($1, 'ready', 3, '{}', clock_timestamp() - interval '1 day') RETURNING id`, queue)
	if c := b.one(); c.ID != want {
		t.Errorf("claimed %d, want %d", c.ID, want)
	}
	b.none()
}
