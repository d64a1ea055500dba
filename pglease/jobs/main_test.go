package jobs_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// children are what the test binary does instead of testing, by the variable that has the database's URL.
var children = map[string]func(url string) error{workerVariable: workAsProcess}

func TestMain(m *testing.M) {
	for variable, work := range children {
		url := os.Getenv(variable)
		if url == "" {
			continue
		}
		if err := work(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	pgleasetest.Main(m)
}

const queue = "mail"

// bench is a client on a database of its own.
type bench struct {
	tb testing.TB
	*jobs.Client
	pool *pgxpool.Pool
}

func setUp(tb testing.TB, config ...jobs.Config) bench {
	tb.Helper()
	return setUpOn(tb, pgleasetest.Pool(tb, migrations.Jobs), config...)
}

func setUpOn(tb testing.TB, pool *pgxpool.Pool, config ...jobs.Config) bench {
	tb.Helper()
	return bench{tb, newClient(tb, pool, config...), pool}
}

func newClient(tb testing.TB, pool *pgxpool.Pool, config ...jobs.Config) *jobs.Client {
	tb.Helper()
	var c jobs.Config
	if len(config) > 0 {
		c = config[0]
	}
	client, err := jobs.New(pool, c)
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

// withSettings returns a pool to a migrated database whose sessions have the settings.
func withSettings(tb testing.TB, settings map[string]string) *pgxpool.Pool {
	tb.Helper()
	return pools.Open(tb, pgleasetest.URL(tb, migrations.Jobs), pools.Settings(settings))
}

// enqueue adds jobs to the queue and returns their ids.
func (b bench) enqueue(list ...jobs.Job) []int64 {
	b.tb.Helper()
	for i := range list {
		if list[i].Queue == "" {
			list[i].Queue = queue
		}
	}
	receipts, err := b.Enqueue(b.tb.Context(), list...)
	if err != nil {
		b.tb.Fatal(err)
	}
	ids := make([]int64, len(receipts))
	for i, r := range receipts {
		ids[i] = r.ID
	}
	return ids
}

func (b bench) claim(n int) []*jobs.Claim {
	b.tb.Helper()
	claims, err := b.Claim(b.tb.Context(), queue, n)
	if err != nil {
		b.tb.Fatal(err)
	}
	return claims
}

// one claims exactly one job.
func (b bench) one() *jobs.Claim {
	b.tb.Helper()
	claims := b.claim(1)
	if len(claims) != 1 {
		b.tb.Fatalf("claimed %d jobs, want one", len(claims))
	}
	return claims[0]
}

// none fails the test if there is a job to claim.
func (b bench) none() {
	b.tb.Helper()
	if claims := b.claim(1); len(claims) != 0 {
		b.tb.Fatalf("claimed job %d, want none", claims[0].ID)
	}
}

func (b bench) done(claims ...*jobs.Claim) {
	b.tb.Helper()
	if err := b.Complete(b.tb.Context(), claims...); err != nil {
		b.tb.Fatal(err)
	}
}

// is fails the test unless the job has the state.
func (b bench) is(id int64, want jobs.State) jobs.Info {
	b.tb.Helper()
	info, err := b.Job(b.tb.Context(), id)
	if err != nil {
		b.tb.Fatal(err)
	}
	if info.State != want {
		b.tb.Fatalf("job %d is %s, want %s", id, info.State, want)
	}
	return info
}

func (b bench) exec(sql string, args ...any) int64 {
	b.tb.Helper()
	tag, err := b.pool.Exec(b.tb.Context(), sql, args...)
	if err != nil {
		b.tb.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}

func value[T any](b bench, sql string, args ...any) T {
	b.tb.Helper()
	var v T
	if err := b.pool.QueryRow(b.tb.Context(), sql, args...).Scan(&v); err != nil {
		b.tb.Fatalf("%s: %v", sql, err)
	}
	return v
}

// cutOff lets the time of all running claims pass, and takes their jobs.
func (b bench) cutOff() int {
	b.tb.Helper()
	b.exec("UPDATE pglease.job SET expires_at = clock_timestamp() - interval '1 second' WHERE state = 'running'")
	moved, err := b.Tend(b.tb.Context())
	if err != nil {
		b.tb.Fatal(err)
	}
	return moved
}

// due makes jobs that wait for their time ready now.
func (b bench) due() {
	b.tb.Helper()
	b.exec("UPDATE pglease.job SET run_at = clock_timestamp() WHERE state = 'ready'")
}

func ids(claims []*jobs.Claim) []int64 {
	list := make([]int64, len(claims))
	for i, c := range claims {
		list[i] = c.ID
	}
	return list
}

// until waits for a condition that others bring about.
func until(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 60*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatalf("in vain waited until %s", what)
		}
	}
}
