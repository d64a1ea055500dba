package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

// captured is a statement that was not run.
type captured struct {
	sql  string
	args []any
}

var errCaptured = errors.New("captured")

func (c *captured) take(sql string, args []any) error {
	c.sql, c.args = sql, args
	return errCaptured
}

func (c *captured) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, c.take(sql, args)
}

func (c *captured) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	return nil, c.take(sql, args)
}

func (c *captured) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	return failedRow{c.take(sql, args)}
}

type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

// beginning is where a claim begins that leaves nothing out.
var beginning = make([]time.Time, jobs.MaxPriority-jobs.MinPriority+1)

// statements are those that run all the time, each for a job that is there to be found.
func statements(claims []*jobs.Claim, parked int64) map[string]func(*jobsdb.Queries, jobsdb.DBTX) error {
	var ids, fences []int64
	for _, c := range claims {
		ids, fences = append(ids, c.ID), append(fences, c.Token().Fence())
	}
	ctx := context.Background()
	e := func(_ any, err error) error { return err }
	return map[string]func(*jobsdb.Queries, jobsdb.DBTX) error{
		"claim one": func(q *jobsdb.Queries, db jobsdb.DBTX) error {
			return e(q.Claim(ctx, db, jobsdb.ClaimParams{Queue: queue, MaxJobs: 1, WorkerID: "w", TTL: time.Minute, Froms: beginning}))
		},
		"claim many": func(q *jobsdb.Queries, db jobsdb.DBTX) error {
			return e(q.Claim(ctx, db, jobsdb.ClaimParams{Queue: queue, MaxJobs: 100, WorkerID: "w", TTL: time.Minute, Froms: beginning}))
		},
		"claim none": func(q *jobsdb.Queries, db jobsdb.DBTX) error {
			return e(q.Claim(ctx, db, jobsdb.ClaimParams{Queue: "empty", MaxJobs: 100, WorkerID: "w", TTL: time.Minute, Froms: beginning}))
		},
		"complete one": func(q *jobsdb.Queries, db jobsdb.DBTX) error {
			return e(q.CompleteOne(ctx, db, jobsdb.CompleteOneParams{ID: ids[0], Fence: fences[0]}))
		},
		"complete and claim": func(q *jobsdb.Queries, db jobsdb.DBTX) error {
			return e(q.CompleteAndClaim(ctx, db, jobsdb.CompleteAndClaimParams{ID: ids[0], Fence: fences[0], Queue: queue, MaxJobs: 1, WorkerID: "w", TTL: time.Minute, Froms: beginning}))
		},
		"complete many": func(q *jobsdb.Queries, db jobsdb.DBTX) error {
			return e(q.Complete(ctx, db, jobsdb.CompleteParams{Ids: ids, Fences: fences}))
		},
		"extend": func(q *jobsdb.Queries, db jobsdb.DBTX) error {
			return e(q.Extend(ctx, db, jobsdb.ExtendParams{Ids: ids, Fences: fences, TTL: time.Minute}))
		},
		"fail": func(q *jobsdb.Queries, db jobsdb.DBTX) error {
			return e(q.Fail(ctx, db, jobsdb.FailParams{ID: ids[0], Fence: fences[0], LastError: "x"}))
		},
		"put back": func(q *jobsdb.Queries, db jobsdb.DBTX) error {
			return e(q.PutBack(ctx, db, jobsdb.PutBackParams{Ids: ids, Fences: fences}))
		},
		"claim states": func(q *jobsdb.Queries, db jobsdb.DBTX) error { return e(q.ClaimStates(ctx, db, ids)) },
		"reap":         func(q *jobsdb.Queries, db jobsdb.DBTX) error { return e(q.Reap(ctx, db, 500)) },
		"holders": func(q *jobsdb.Queries, db jobsdb.DBTX) error {
			return e(q.Holders(ctx, db, jobsdb.HoldersParams{Queues: []string{queue}, UniqueKeys: []string{"u7"}}))
		},
		"promote": func(q *jobsdb.Queries, db jobsdb.DBTX) error {
			return e(q.Promote(ctx, db, jobsdb.PromoteParams{Queues: []string{queue}, PartitionKeys: []string{"p7"}}))
		},
		"parked": func(q *jobsdb.Queries, db jobsdb.DBTX) error {
			return e(q.Parked(ctx, db, jobsdb.ParkedParams{Queue: queue, After: parked, MaxRows: 100}))
		},
		"retry": func(q *jobsdb.Queries, db jobsdb.DBTX) error { return e(q.Retry(ctx, db, []int64{parked})) },
		"drop":  func(q *jobsdb.Queries, db jobsdb.DBTX) error { return e(q.Drop(ctx, db, []int64{parked})) },
		"prune": func(q *jobsdb.Queries, db jobsdb.DBTX) error {
			return e(q.Prune(ctx, db, jobsdb.PruneParams{Age: time.Hour, MaxRows: 100}))
		},
	}
}

// What is finished, parked or of the future costs no statement anything, with and without
// statistics, and whatever kind of plan is made.
func TestCostDoesNotGrowWithTheTable(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	total := 50_000
	if long() {
		total = 1_000_000
	}
	b.enqueue(make([]jobs.Job, 200)...)
	claims := b.claim(100)
	b.exec(`INSERT INTO pglease.job (queue, state, max_attempts, payload, finished_at) SELECT $1, 'done', 3, '{}', clock_timestamp() FROM generate_series(1, $2::int)`, queue, total)
	b.exec(`INSERT INTO pglease.job (queue, state, max_attempts, payload, unique_key) SELECT $1, 'parked', 3, '{}', 'u' || i FROM generate_series(1, $2::int) i`, queue, total/10)
	b.exec(`INSERT INTO pglease.job (queue, state, max_attempts, payload, run_at) SELECT $1, 'ready', 3, '{}', clock_timestamp() + interval '1 day' FROM generate_series(1, $2::int)`, queue, total/10)
	b.exec(`INSERT INTO pglease.job (queue, state, max_attempts, payload, partition_key) SELECT $1, 'waiting', 3, '{}', 'p' || i % 50 FROM generate_series(1, $2::int) i`, queue, total/100)
	b.exec("TRUNCATE pglease.job_signal")
	parked := value[int64](b, "SELECT min(id) FROM pglease.job WHERE state = 'parked'")
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			b.exec("VACUUM ANALYZE pglease.job")
		}
		for name, statement := range statements(claims, parked) {
			for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
				plan := b.explain(mode, statement)
				what := fmt.Sprintf("%s, analyzed %v, %s", name, analyzed, mode)
				t.Logf("%s: beside %d finished and %d parked jobs: %s", what, total, total/10, regexp.MustCompile(`Buffers: shared hit=\d+`).FindString(plan))
				cheap(t, what, plan)
			}
		}
	}
}

// cheap fails the test unless a plan went by indexes and threw little away.
func cheap(t *testing.T, what, plan string) {
	t.Helper()
	if regexp.MustCompile(`Seq Scan on job( j|\n)`).MatchString(plan) {
		t.Errorf("%s walks through the table:\n%s", what, plan)
	}
	for _, m := range regexp.MustCompile(`Rows Removed by (?:Filter|Join Filter|Index Recheck): (\d+)`).FindAllStringSubmatch(plan, -1) {
		if n, err := strconv.Atoi(m[1]); err != nil || n > 300 {
			t.Errorf("%s throws rows away:\n%s", what, plan)
		}
	}
	if n := buffers(t, plan); n > 4000 {
		t.Errorf("%s touches %d pages:\n%s", what, n, plan)
	}
}

// buffers is how many pages a statement touched.
func buffers(t *testing.T, plan string) int {
	t.Helper()
	m := regexp.MustCompile(`Buffers: shared hit=(\d+)`).FindStringSubmatch(plan)
	if m == nil {
		t.Fatalf("no buffers in\n%s", plan)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// explain runs a statement under EXPLAIN ANALYZE and undoes it.
func (b bench) explain(mode string, statement func(*jobsdb.Queries, jobsdb.DBTX) error) string {
	b.tb.Helper()
	s, err := schema.New("")
	if err != nil {
		b.tb.Fatal(err)
	}
	var c captured
	if err := statement(jobsdb.New(), s.On(&c)); !errors.Is(err, errCaptured) {
		b.tb.Fatal(err)
	}
	var lines []string
	err = b.pool.AcquireFunc(b.tb.Context(), func(conn *pgxpool.Conn) error {
		tx, err := conn.Begin(b.tb.Context())
		if err != nil {
			return err
		}
		defer tx.Rollback(b.tb.Context())
		if _, err := tx.Exec(b.tb.Context(), "SELECT set_config('plan_cache_mode', $1, true)", mode); err != nil {
			return err
		}
		rows, err := tx.Query(b.tb.Context(), "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) "+c.sql, c.args...)
		if err != nil {
			return err
		}
		lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		b.tb.Fatalf("%s: %v", c.sql, err)
	}
	return strings.Join(lines, "\n")
}
