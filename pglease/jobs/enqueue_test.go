package jobs_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/jobs"
)

func TestEnqueueTxCountsWithItsTransaction(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.EnqueueTx(t.Context(), tx, jobs.Job{Queue: queue}); err != nil {
		t.Fatal(err)
	}
	b.none()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.none()
	var receipts []jobs.Receipt
	err = pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		receipts, err = b.EnqueueTx(t.Context(), tx, jobs.Job{Queue: queue}, jobs.Job{Queue: queue, Delay: time.Hour})
		return err
	})
	if err != nil || len(receipts) != 2 {
		t.Fatal(receipts, err)
	}
	if c := b.one(); c.ID != receipts[0].ID {
		t.Errorf("claimed %d, want %d", c.ID, receipts[0].ID)
	}
	if got, err := b.Enqueue(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("nothing to enqueue: %v, %v", got, err)
	}
}

// A job that waits for its time is not claimed before an own transaction's clock says so: the
// database's clock runs on inside a long transaction.
func TestDelayCountsFromTheEnqueueing_T1(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SELECT pg_sleep(0.2)"); err != nil {
			return err
		}
		_, err := b.EnqueueTx(t.Context(), tx, jobs.Job{Queue: queue, Delay: time.Hour})
		if err != nil {
			return err
		}
		var late bool
		err = tx.QueryRow(t.Context(), "SELECT run_at > transaction_timestamp() + interval '1 hour 0.15 seconds' FROM pglease.job").Scan(&late)
		if !late {
			t.Error("the delay counts from the begin of the transaction")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func unique(key string) jobs.Job { return jobs.Job{Queue: queue, Unique: jobs.Unique{Key: key}} }

func TestDuplicateGetsTheExistingJob(t *testing.T) {
	t.Parallel()
	b := setUp(t, jobs.Config{MaxAttempts: 1})
	add := func(list ...jobs.Job) []jobs.Receipt {
		t.Helper()
		got, err := b.Enqueue(t.Context(), list...)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := add(unique("a"), jobs.Job{Queue: queue}, unique("b"), unique("a"), jobs.Job{Queue: queue})
	a := got[0].ID
	if got[3] != (jobs.Receipt{ID: a, State: jobs.Ready, Duplicate: true}) || got[0].Duplicate || got[1].Duplicate || got[2].Duplicate {
		t.Errorf("got %+v", got)
	}
	if list := []int64{got[0].ID, got[1].ID, got[2].ID, got[4].ID}; !slices.IsSorted(list) || len(slices.Compact(list)) != 4 {
		t.Errorf("ids %v are not in the order of the call", list)
	}
	state := func(want jobs.State) {
		t.Helper()
		if got := add(unique("a")); got[0] != (jobs.Receipt{ID: a, State: want, Duplicate: true}) {
			t.Errorf("while %s: got %+v", want, got)
		}
	}
	claim := b.claim(1)[0]
	state(jobs.Running)
	if _, err := b.Fail(t.Context(), claim, jobs.Failure{Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	state(jobs.Parked)
	if err := b.Retry(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	state(jobs.Ready)
	if other := add(jobs.Job{Queue: "another", Unique: jobs.Unique{Key: "a"}}); other[0].Duplicate {
		t.Error("a key counts in another queue")
	}
	for _, c := range b.claim(10) {
		b.done(c)
	}
	b.is(a, jobs.Done)
	if got := add(unique("a")); got[0].Duplicate || got[0].ID == a {
		t.Errorf("after completion: got %+v", got)
	}
	if err := b.Drop(t.Context(), add(unique("a"))[0].ID); err != nil {
		t.Fatal(err)
	}
	if got := add(unique("a")); got[0].Duplicate {
		t.Errorf("after drop: got %+v", got)
	}
}

// A key may outlive its job.
func TestUniqueKeyIsKeptForATime(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	job := jobs.Job{Queue: queue, Unique: jobs.Unique{Key: "a", For: time.Hour}}
	id := b.enqueue(job)[0]
	b.done(b.one())
	got, err := b.Enqueue(t.Context(), job)
	if err != nil || got[0] != (jobs.Receipt{ID: id, State: jobs.Done, Duplicate: true}) {
		t.Fatalf("got %+v, %v", got, err)
	}
	if n, err := b.Prune(t.Context(), 0); err != nil || n != 0 {
		t.Errorf("pruned %d, %v", n, err)
	}
	b.exec("UPDATE pglease.job SET unique_until = clock_timestamp()")
	got, err = b.Enqueue(t.Context(), job)
	if err != nil || got[0].Duplicate || got[0].ID == id {
		t.Fatalf("got %+v, %v", got, err)
	}
	if n, err := b.Prune(t.Context(), 0); err != nil || n != 1 {
		t.Errorf("pruned %d, %v", n, err)
	}
}

// So it is where a person drops the job.
func TestDroppedJobKeepsItsKeyForTheTime(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for key, keep := range map[string]time.Duration{"kept": time.Hour, "given up": 0} {
		job := jobs.Job{Queue: queue, Unique: jobs.Unique{Key: key, For: keep}}
		id := b.enqueue(job)[0]
		if err := b.Drop(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		got, err := b.Enqueue(t.Context(), job)
		if err != nil || got[0].Duplicate != (keep > 0) || (got[0].ID == id) != (keep > 0) {
			t.Errorf("%s: %+v, %v", key, got, err)
		}
	}
}

// A job that gave up its key by being claimed, and whose retry meets a queued job with the key,
// runs beside that: both end.
func TestRetryMeetsQueuedJobWithTheSameKey_J5(t *testing.T) {
	t.Parallel()
	for name, retry := range map[string]func(bench, *jobs.Claim) error{
		"failed": func(b bench, c *jobs.Claim) error {
			_, err := b.Fail(b.tb.Context(), c, jobs.Failure{Reason: "no", Delay: jobs.NoDelay})
			return err
		},
		"returned": func(b bench, c *jobs.Claim) error { return b.Return(b.tb.Context(), c) },
		"snoozed": func(b bench, c *jobs.Claim) error {
			defer b.due()
			return b.Snooze(b.tb.Context(), c, time.Hour)
		},
		"cut off": func(b bench, _ *jobs.Claim) error { b.cutOff(); return nil },
		"parked and retried": func(b bench, c *jobs.Claim) error {
			if _, err := b.Fail(b.tb.Context(), c, jobs.Failure{Park: true}); err != nil {
				return err
			}
			return b.Retry(b.tb.Context(), c.ID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t)
			job := jobs.Job{Queue: queue, Unique: jobs.Unique{Key: "sync", WhileWaiting: true}}
			first := b.enqueue(job)[0]
			claim := b.one()
			second := b.enqueue(job)[0]
			if second == first {
				t.Fatal("the key was not given up")
			}
			if err := retry(b, claim); err != nil {
				t.Fatal(err)
			}
			if got, err := b.Enqueue(t.Context(), job); err != nil || !got[0].Duplicate || got[0].ID != second {
				t.Errorf("got %+v, %v", got, err)
			}
			b.done(b.claim(10)...)
			b.is(first, jobs.Done)
			b.is(second, jobs.Done)
		})
	}
}

// Of rivals with one key one adds the job, and all get its id.
func TestRivalsForAUniqueKey(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]map[string]string{"default": nil, "serializable": {"default_transaction_isolation": "serializable"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setUpOn(t, withSettings(t, settings))
			var mu sync.Mutex
			holders := map[int64]int{}
			added := 0
			var group sync.WaitGroup
			for i := range 40 {
				group.Go(func() {
					list := []jobs.Job{unique("a"), unique("b")}
					if i%2 == 0 {
						slices.Reverse(list) // the order of keys in a call does not matter
					}
					got, err := b.Enqueue(t.Context(), list...)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					for _, r := range got {
						holders[r.ID]++
						if !r.Duplicate {
							added++
						}
					}
				})
			}
			group.Wait()
			if len(holders) != 2 || added != 2 {
				t.Errorf("%d added, holders %v", added, holders)
			}
		})
	}
}

// While keys are freed by workers, an enqueuer always gets an answer that was true.
func TestUniqueKeyUnderTraffic(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	stop := make(chan struct{})
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				claims, err := b.Claim(t.Context(), queue, 5)
				if err == nil {
					err = b.Complete(t.Context(), claims...)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 300 {
		got, err := b.Enqueue(t.Context(), unique("a"), unique("b"))
		if err != nil || got[0].ID == 0 || got[1].ID == 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	close(stop)
	group.Wait()
}
