package jobs_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// BenchmarkClaim compares, in turn and with 8 workers, claiming and completing jobs one at a time
// and in batches of 100 with two UPDATEs of single rows. It reports medians of rates a second and
// the ratios of the medians. The test server has fsync off, so what a statement costs weighs more
// than in service; PGLEASE_TEST_DATABASE_URL names another.
func BenchmarkClaim(b *testing.B) {
	pool := benchPool(b)
	c := setUpOn(b, pool)
	c.exec("CREATE TABLE bare (id int PRIMARY KEY, v int) WITH (fillfactor = 70)")
	c.exec("INSERT INTO bare SELECT i, 0 FROM generate_series(1, 100000) i")
	c.exec("VACUUM ANALYZE bare")
	phases := []func() float64{
		func() float64 {
			return rate(b, 1, func(ctx context.Context) (int, error) { return updateTwice(ctx, pool) })
		},
		func() float64 { return claimRate(c, 1, 2000) },
		func() float64 { return claimRate(c, 100, 20_000) },
	}
	rates := make([][]float64, len(phases))
	for b.Loop() {
		for i, phase := range phases {
			rates[i] = append(rates[i], phase())
		}
	}
	medians := make([]float64, len(rates))
	for i, r := range rates {
		slices.Sort(r)
		medians[i] = r[len(r)/2]
	}
	b.ReportMetric(medians[0], "two-updates/s")
	b.ReportMetric(medians[1], "jobs/s")
	b.ReportMetric(medians[2], "batched-jobs/s")
	b.ReportMetric(medians[1]/medians[0], "x-updates")
	b.ReportMetric(medians[2]/medians[1], "x-batched")
}

const benchWorkers = 8

func benchPool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(pgleasetest.URL(tb, migrations.Jobs))
	if err != nil {
		tb.Fatal(err)
	}
	config.MaxConns = benchWorkers + 2
	pool, err := pgxpool.NewWithConfig(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

func updateTwice(ctx context.Context, pool *pgxpool.Pool) (int, error) {
	for range 2 {
		if _, err := pool.Exec(ctx, "UPDATE bare SET v = v + 1 WHERE id = $1", 1+rand.IntN(100_000)); err != nil {
			return 0, err
		}
	}
	return 1, nil
}

// claimRate fills the queue and measures how fast it is emptied, a batch at a time.
func claimRate(c bench, batch, total int) float64 {
	c.tb.Helper()
	c.exec("INSERT INTO pglease.job (queue, state, max_attempts, payload) SELECT $1, 'ready', 3, '{}' FROM generate_series(1, $2::int)", queue, total)
	return rate(c.tb, 0, func(ctx context.Context) (int, error) {
		claims, err := c.Claim(ctx, queue, batch)
		if err != nil {
			return 0, err
		}
		return len(claims), c.Complete(ctx, claims...)
	})
}

// rate runs step in all workers, for a number of seconds or, with 0, until there is nothing to do.
func rate(tb testing.TB, seconds int, step func(context.Context) (int, error)) float64 {
	tb.Helper()
	var group sync.WaitGroup
	var mu sync.Mutex
	total := 0
	began := time.Now()
	for range benchWorkers {
		group.Go(func() {
			done := 0
			for seconds == 0 || time.Since(began) < time.Duration(seconds)*time.Second {
				n, err := step(tb.Context())
				if err != nil {
					tb.Error(err)
					return
				}
				if done += n; n == 0 {
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			total += done
		})
	}
	group.Wait()
	return float64(total) / time.Since(began).Seconds()
}
