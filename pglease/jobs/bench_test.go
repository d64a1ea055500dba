package jobs_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// BenchmarkClaim compares, in turn and with 8 workers, claiming and completing jobs one at a time
// and in batches of 100 with two UPDATEs of single rows. It reports medians of rates a second,
// and of the ratios within a round. The test server has fsync off, so what a statement costs weighs more
// than in service; PGLEASE_TEST_DATABASE_URL names another.
func BenchmarkClaim(b *testing.B) {
	pool := benchPool(b)
	c := setUpOn(b, pool)
	c.exec("CREATE TABLE bare (id int PRIMARY KEY, v int) WITH (fillfactor = 70)")
	c.exec("INSERT INTO bare SELECT i, 0 FROM generate_series(1, 100000) i")
	c.exec("VACUUM ANALYZE bare")
	phases := []func() float64{
		func() float64 {
			return rate(b, func(ctx context.Context) (int, error) { return updateTwice(ctx, pool) })
		},
		func() float64 { return claimRate(c, 1, 10_000) },
		func() float64 { return claimRate(c, 100, 50_000) },
	}
	rates, single, batched := make([][]float64, len(phases)), []float64{}, []float64{}
	for b.Loop() {
		var round [3]float64
		for i, phase := range phases {
			round[i] = phase()
			rates[i] = append(rates[i], round[i])
		}
		single, batched = append(single, round[1]/round[0]), append(batched, round[2]/round[1])
	}
	b.ReportMetric(median(rates[0]), "two-updates/s")
	b.ReportMetric(median(rates[1]), "jobs/s")
	b.ReportMetric(median(rates[2]), "batched-jobs/s")
	b.ReportMetric(median(single), "x-updates")
	b.ReportMetric(median(batched), "x-batched")
}

func median(numbers []float64) float64 {
	slices.Sort(numbers)
	return numbers[len(numbers)/2]
}

// phase is how long each rate is measured: short, so that the phases of a round meet the same
// machine.
const phase = 500 * time.Millisecond

const benchWorkers = 8

func benchPool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	return pools.Open(tb, pgleasetest.URL(tb, migrations.Jobs), pools.Conns(benchWorkers+2))
}

func updateTwice(ctx context.Context, pool *pgxpool.Pool) (int, error) {
	for range 2 {
		if _, err := pool.Exec(ctx, "UPDATE bare SET v = v + 1 WHERE id = $1", 1+rand.IntN(100_000)); err != nil {
			return 0, err
		}
	}
	return 1, nil
}

// claimRate sees to it that there are so many jobs, and measures how fast they are done, a batch at
// a time.
func claimRate(c bench, batch, jobs int) float64 {
	c.tb.Helper()
	c.exec(`INSERT INTO pglease.job (queue, state, max_attempts, payload) SELECT $1, 'ready', 3, '{}'
		FROM generate_series(1, $2::int - (SELECT count(*)::int FROM pglease.job WHERE queue = $1 AND state = 'ready'))`, queue, jobs)
	return rate(c.tb, func(ctx context.Context) (int, error) {
		claims, err := c.Claim(ctx, queue, batch)
		if err != nil {
			return 0, err
		}
		return len(claims), c.Complete(ctx, claims...)
	})
}

// rate runs step in all workers for a phase, or until there is nothing to do.
func rate(tb testing.TB, step func(context.Context) (int, error)) float64 {
	tb.Helper()
	var group sync.WaitGroup
	var total atomic.Int64
	began := time.Now()
	for range benchWorkers {
		group.Go(func() {
			for time.Since(began) < phase {
				n, err := step(tb.Context())
				if err != nil {
					tb.Error(err)
				}
				if err != nil || n == 0 {
					return
				}
				total.Add(int64(n))
			}
		})
	}
	group.Wait()
	return float64(total.Load()) / time.Since(began).Seconds()
}
