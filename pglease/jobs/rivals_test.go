package jobs_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// long tells whether the tests take the numbers of a release and not those of every day.
func long() bool { return os.Getenv("PGLEASE_LONG") != "" }

// No job is claimed twice, and nobody gets more than asked for, whatever joins the planner likes.
func TestManyClaimers_J1(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]map[string]string{
		"default":        nil,
		"nested loops":   {"enable_hashjoin": "off", "enable_mergejoin": "off"},
		"no index scans": {"enable_indexscan": "off", "enable_bitmapscan": "off"},
		"custom plans":   {"plan_cache_mode": "force_custom_plan", "enable_material": "off"},
		"serializable":   {"default_transaction_isolation": "serializable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			total := 2000
			if name == "default" || long() {
				total = 10_000
			}
			b := setUpOn(t, pools.Open(t, pgleasetest.URL(t, migrations.Jobs), pools.Conns(16), pools.Settings(settings)), jobs.Config{TTL: time.Hour})
			b.exec("INSERT INTO pglease.job (queue, state, max_attempts, payload) SELECT $1, 'ready', 3, '{}' FROM generate_series(1, $2::int)", queue, total)
			var mu sync.Mutex
			seen := map[int64]int{}
			var group sync.WaitGroup
			for range 200 {
				group.Go(func() {
					for {
						n := 1 + rand.IntN(7)
						claims, err := b.Claim(t.Context(), queue, n)
						if err != nil || len(claims) > n {
							t.Errorf("claimed %d of %d: %v", len(claims), n, err)
							return
						}
						if len(claims) == 0 {
							return
						}
						mu.Lock()
						for _, c := range claims {
							seen[c.ID]++
						}
						mu.Unlock()
					}
				})
			}
			group.Wait()
			// Who finds all that is due locked by others goes; nobody is left behind by that.
			for claims := b.claim(1000); len(claims) > 0; claims = b.claim(1000) {
				for _, c := range claims {
					seen[c.ID]++
				}
			}
			if len(seen) != total {
				t.Errorf("%d of %d jobs were claimed", len(seen), total)
			}
			for id, n := range seen {
				if n != 1 {
					t.Errorf("job %d was claimed %d times", id, n)
				}
			}
		})
	}
}

// Reapers, claimers and heartbeats never wait for each other in a circle.
func TestReapersAndClaimersNeverDeadlock(t *testing.T) {
	t.Parallel()
	seconds := 4 * time.Second
	if long() {
		seconds = time.Minute
	}
	url := pgleasetest.URL(t, migrations.Jobs)
	pool := pools.Open(t, url, pools.Conns(24))
	b := setUpOn(t, pool, jobs.Config{TTL: jobs.MinTTL, MaxAttempts: 1_000_000})
	for i := range 40 {
		list := make([]jobs.Job, 50)
		for j := range list {
			if list[j].Queue = queue; i%2 == 0 {
				list[j].Partition = string(rune('a' + j%10))
			}
		}
		b.enqueue(list...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), seconds)
	defer cancel()
	var group sync.WaitGroup
	var claimed, reaped atomic.Int64
	check := func(err error) {
		if err != nil && ctx.Err() == nil && !errors.Is(err, jobs.ErrStaleClaim) {
			t.Error(err)
		}
	}
	for range 4 {
		reaper := newClient(t, pool, jobs.Config{TTL: jobs.MinTTL})
		group.Go(func() {
			for ctx.Err() == nil {
				n, err := reaper.Tend(ctx)
				reaped.Add(int64(n))
				check(err)
			}
		})
	}
	for range 20 {
		group.Go(func() {
			for ctx.Err() == nil {
				claims, err := b.Claim(ctx, queue, 1+rand.IntN(20))
				check(err)
				claimed.Add(int64(len(claims)))
				rand.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
				check(disturb(ctx, b.Client, claims))
			}
		})
	}
	group.Wait()
	pool.Close() // the statistics of a session arrive with its end at the latest
	other := setUpOn(t, pools.Open(t, url, pools.Conns(1)))
	if n := value[int64](other, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	t.Logf("%d claims, %d cut off or promoted", claimed.Load(), reaped.Load())
	if claimed.Load() < 100 || reaped.Load() < 10 {
		t.Error("too little happened to say anything")
	}
}

// disturb does any of the things that are done to claims, and leaves some to the reapers.
func disturb(ctx context.Context, c *jobs.Client, claims []*jobs.Claim) error {
	switch rand.IntN(5) {
	case 0:
		return c.Return(ctx, claims...)
	case 1:
		return c.Extend(ctx, claims...)
	case 2:
		var err error
		for _, claim := range claims {
			_, failed := c.Fail(ctx, claim, jobs.Failure{Reason: "no", Delay: jobs.NoDelay})
			err = errors.Join(err, failed)
		}
		return err
	case 3:
		if len(claims) > 0 {
			return errors.Join(c.Complete(ctx, claims...), again(ctx, c, claims))
		}
	}
	return nil
}

// again enqueues what was completed, so that the work does not run out.
func again(ctx context.Context, c *jobs.Client, claims []*jobs.Claim) error {
	list := make([]jobs.Job, len(claims))
	for i, claim := range claims {
		list[i] = jobs.Job{Queue: claim.Queue, Partition: claim.Partition, MaxAttempts: claim.MaxAttempts}
	}
	_, err := c.Enqueue(ctx, list...)
	return err
}
