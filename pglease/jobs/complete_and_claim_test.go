package jobs_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestCompleteAndClaim(t *testing.T) {
	t.Parallel()
	b := setUp(t, jobs.Config{Owner: "W1"})
	all := b.enqueue(jobs.Job{}, jobs.Job{Payload: []byte(`{"n": 2}`), MaxAttempts: 3, Priority: -1}, jobs.Job{Queue: "another"}, jobs.Job{Priority: 1})
	first := b.one()
	claims, err := b.CompleteAndClaim(t.Context(), first, 5)
	if err != nil || !slices.Equal(ids(claims), []int64{all[0], all[1]}) {
		t.Fatalf("claimed %v, %v", ids(claims), err)
	}
	b.is(first.ID, jobs.Done)
	c := claims[1]
	info := b.is(all[1], jobs.Running)
	if c.Attempt != 1 || c.MaxAttempts != 3 || c.Priority != -1 || string(c.Payload) != `{"n": 2}` || c.Queue != queue || c.Remaining() <= 0 ||
		info.Fence != c.Token().Fence() || info.Worker != "W1" || !c.RunAt.Equal(info.RunAt) || !c.CreatedAt.Equal(info.CreatedAt) {
		t.Errorf("claim %+v, job %+v", c, info)
	}
	if more, err := b.CompleteAndClaim(t.Context(), claims[0], 1); err != nil || len(more) != 0 {
		t.Errorf("from an empty queue: %v, %v", ids(more), err)
	}
	b.is(all[0], jobs.Done)
	if again, err := b.CompleteAndClaim(t.Context(), claims[0], 1); err != nil || len(again) != 0 {
		t.Errorf("again: %v, %v", again, err)
	}
	// A partition moves on: the end of its head makes the next one ready.
	chain := b.enqueue(in("a"), in("a"))
	head := b.one()
	next, err := b.CompleteAndClaim(t.Context(), head, 1)
	if err != nil || !slices.Equal(ids(next), chain[1:]) || next[0].PartitionToken().Fence() <= head.PartitionToken().Fence() {
		t.Errorf("the next of the partition: %v, %v", ids(next), err)
	}
}

// A stale claim is told so, changes nothing of its job, and does not cost the new claims.
func TestCompleteAndClaimOfAStaleClaim_J2(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	all := b.enqueue(jobs.Job{}, jobs.Job{})
	older := b.one()
	b.cutOff()
	b.exec("UPDATE pglease.job SET run_at = clock_timestamp() WHERE id = $1", all[1])
	newer := b.one()
	claims, err := b.CompleteAndClaim(t.Context(), older, 1)
	var stale *jobs.StaleClaimError
	if !errors.As(err, &stale) || stale.ID != all[0] || stale.Current != newer.Token().Fence() || !slices.Equal(ids(claims), all[1:]) {
		t.Errorf("claimed %v, %v", ids(claims), err)
	}
	b.is(all[0], jobs.Running)
	b.done(newer)
	if more, err := b.CompleteAndClaim(t.Context(), older, 1); !errors.Is(err, jobs.ErrStaleClaim) || len(more) != 0 {
		t.Errorf("after the newer was done: %v, %v", more, err)
	}
}

// A reply that is lost leaves a job that is done, and a claim that ends by its time.
func TestCompleteAndClaimLosesItsReply_U1(t *testing.T) {
	t.Parallel()
	faults := pgleasetest.NewFaults()
	b := setUpOn(t, faults.Pool(t, pgleasetest.URL(t, migrations.Jobs)))
	all := b.enqueue(jobs.Job{}, jobs.Job{})
	first := b.one()
	faults.LoseNextReply(func(sql string) bool { return strings.HasPrefix(sql, "-- name: CompleteAndClaim ") })
	if claims, err := b.CompleteAndClaim(t.Context(), first, 1); err == nil || errors.Is(err, jobs.ErrStaleClaim) {
		t.Errorf("claimed %v, %v", claims, err)
	}
	b.is(all[1], jobs.Running)
	if claims, err := b.CompleteAndClaim(t.Context(), first, 1); err != nil || len(claims) != 0 {
		t.Errorf("again: %v, %v", claims, err)
	}
	b.is(all[0], jobs.Done)
	b.cutOff()
	if c := b.one(); c.ID != all[1] || c.Attempt != 2 {
		t.Errorf("claimed %+v", c)
	}
}

// Many that work on one job after the other do each of them once, beside those who reap.
func TestManyCompleteAndClaim_J1(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]map[string]string{
		"default":      nil,
		"nested loops": {"enable_hashjoin": "off", "enable_mergejoin": "off"},
		"serializable": {"default_transaction_isolation": "serializable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const total = 1000
			b := setUpOn(t, pools.Open(t, pgleasetest.URL(t, migrations.Jobs), pools.Conns(8), pools.Settings(settings)), jobs.Config{TTL: time.Hour})
			b.exec("INSERT INTO pglease.job (queue, state, max_attempts, payload) SELECT $1, 'ready', 3, '{}' FROM generate_series(1, $2::int)", queue, total)
			var mu sync.Mutex
			seen := map[int64]int{}
			take := func(claims []*jobs.Claim) *jobs.Claim {
				mu.Lock()
				defer mu.Unlock()
				for _, c := range claims {
					seen[c.ID]++
					return c
				}
				return nil
			}
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() {
					claims, err := b.Claim(t.Context(), queue, 1)
					for c := take(claims); c != nil && err == nil; c = take(claims) {
						claims, err = b.CompleteAndClaim(t.Context(), c, 1)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			for claims := b.claim(1); len(claims) > 0; claims = b.claim(1) { // what was locked when the others looked
				b.done(take(claims))
			}
			if done := value[int](b, "SELECT count(*) FROM pglease.job WHERE state = 'done' AND attempt = 1"); done != total || len(seen) != total {
				t.Errorf("%d jobs were claimed and %d done, want %d", len(seen), done, total)
			}
			for id, n := range seen {
				if n != 1 {
					t.Errorf("job %d was claimed %d times", id, n)
				}
			}
		})
	}
}
