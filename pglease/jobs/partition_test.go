package jobs_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/jobs"
)

func in(key string) jobs.Job { return jobs.Job{Queue: queue, Partition: key} }

func TestPartitionRunsOneAtATimeInOrder(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	all := b.enqueue(in("a"), in("b"), in("a"), in("a"), in("b"), jobs.Job{})
	first := b.claim(10)
	if got := ids(first); !slices.Equal(slices.Sorted(slices.Values(got)), []int64{all[0], all[1], all[5]}) {
		t.Fatalf("claimed %v of %v", got, all)
	}
	b.none()
	b.is(all[2], jobs.Waiting)
	b.done(first...)
	second := b.claim(10)
	if got := ids(second); !slices.Equal(slices.Sorted(slices.Values(got)), []int64{all[2], all[4]}) {
		t.Fatalf("claimed %v of %v", got, all)
	}
	b.done(second...)
	if c := b.one(); c.ID != all[3] {
		t.Errorf("claimed %d, want %d", c.ID, all[3])
	}
}

// A failed, snoozed or parked job holds up its own partition and no other.
func TestPausedPartitionBlocksNoOther(t *testing.T) {
	t.Parallel()
	b := setUp(t, jobs.Config{MaxAttempts: 1})
	all := b.enqueue(in("failed"), in("snoozed"), in("parked"), in("slow"), in("failed"), in("snoozed"), in("parked"), in("slow"), in("good"), in("good"))
	byKey := map[string]*jobs.Claim{}
	for _, c := range b.claim(10) {
		byKey[c.Partition] = c
	}
	if _, err := b.Fail(t.Context(), byKey["parked"], jobs.Failure{Reason: "poison"}); err != nil {
		t.Fatal(err)
	}
	b.exec("UPDATE pglease.job SET max_attempts = 5 WHERE state <> 'parked'")
	if _, err := b.Fail(t.Context(), byKey["failed"], jobs.Failure{Reason: "no", Delay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := b.Snooze(t.Context(), byKey["snoozed"], time.Hour); err != nil {
		t.Fatal(err)
	}
	b.done(byKey["good"])
	if c := b.one(); c.ID != all[9] {
		t.Errorf("claimed %d of %q", c.ID, c.Partition)
	}
	b.none()
	if c := b.is(all[2], jobs.Parked); c.LastError != "poison" {
		t.Errorf("got %+v", c)
	}
	// The parked one is dropped: its partition goes on.
	if err := b.Drop(t.Context(), all[2]); err != nil {
		t.Fatal(err)
	}
	if c := b.one(); c.ID != all[6] {
		t.Errorf("claimed %d of %q", c.ID, c.Partition)
	}
	// The others come back in order.
	b.due()
	if got := ids(b.claim(10)); !slices.Equal(slices.Sorted(slices.Values(got)), []int64{all[0], all[1]}) {
		t.Errorf("claimed %v of %v", got, all)
	}
}

// The generation of a partition grows with each claim of any of its jobs.
func TestGenerationGrowsWithEachClaim(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.enqueue(in("a"), in("a"))
	first := b.one()
	if first.PartitionToken().Resource() != "partition/mail/a" || first.PartitionToken().LeaseID() != first.Token().LeaseID() {
		t.Errorf("got %v", first.PartitionToken())
	}
	tokens := []*jobs.Claim{first}
	b.cutOff()
	again := b.one()
	tokens = append(tokens, again)
	if err := b.Complete(t.Context(), first); !errors.Is(err, jobs.ErrStaleClaim) {
		t.Errorf("stale claim of a partition: %v", err)
	}
	b.none()
	b.done(again)
	tokens = append(tokens, b.one())
	for i, c := range tokens[1:] {
		if order, err := tokens[i].PartitionToken().Compare(c.PartitionToken()); err != nil || order >= 0 {
			t.Errorf("%v, then %v: %d, %v", tokens[i].PartitionToken(), c.PartitionToken(), order, err)
		}
	}
}

// A transaction that enqueues late holds up who enqueues under its key, and no worker. What it
// adds while the partition's last job ends is not forgotten.
func TestOpenTransactionBlocksNoWorker(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	first := b.enqueue(in("a"))[0]
	claim := b.one()
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.EnqueueTx(t.Context(), tx, in("a")); err != nil {
		t.Fatal(err)
	}
	later := make(chan int64)
	go func() { later <- b.enqueue(in("a"))[0] }()
	b.done(claim)
	b.is(first, jobs.Done)
	b.none() // looks at the partition, and sees nothing yet
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	third := <-later
	second := b.one()
	if second.ID <= first || second.ID >= third {
		t.Errorf("claimed %d, between %d and %d", second.ID, first, third)
	}
	b.done(second)
	if c := b.one(); c.ID != third {
		t.Errorf("claimed %d, want %d", c.ID, third)
	}
}

// Whatever enqueuers and workers do at once, the jobs of each key run alone, in the order of
// commits, and none is left asleep.
func TestPartitionsUnderTraffic(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	const keys, each = 5, 60
	var mu sync.Mutex
	committed, ran := map[string][]int64{}, map[string][]int64{}
	busy := map[string]bool{}
	var enqueuers, workers sync.WaitGroup
	for k := range keys {
		key := string(rune('a' + k))
		for range 2 {
			enqueuers.Go(func() {
				for range each / 2 {
					err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
						got, err := b.EnqueueTx(t.Context(), tx, in(key))
						if err == nil { // under the key's lock: the order of commits
							mu.Lock()
							committed[key] = append(committed[key], got[0].ID)
							mu.Unlock()
						}
						return err
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	total := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, list := range ran {
			n += len(list)
		}
		return n
	}
	for range 6 {
		workers.Go(func() {
			for total() < keys*each && t.Context().Err() == nil {
				claims, err := b.Claim(t.Context(), queue, 3)
				if err != nil {
					t.Error(err)
					return
				}
				if len(claims) == 0 {
					continue
				}
				mu.Lock()
				for _, c := range claims {
					if busy[c.Partition] {
						t.Errorf("two jobs of %q at once", c.Partition)
					}
					busy[c.Partition] = true
					ran[c.Partition] = append(ran[c.Partition], c.ID)
				}
				mu.Unlock()
				b.is(claims[0].ID, jobs.Running) // time for another to do it wrong
				mu.Lock()
				for _, c := range claims {
					busy[c.Partition] = false
				}
				mu.Unlock()
				if err := b.Complete(t.Context(), claims...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	enqueuers.Wait()
	workers.Wait()
	for key, want := range committed {
		if !slices.Equal(ran[key], want) {
			t.Errorf("%q ran %v, committed %v", key, ran[key], want)
		}
	}
}

// The database holds that one job of a partition is at its head.
func TestPartitionHasOneHead(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.enqueue(in("a"), in("a"))
	b.one()
	if _, err := b.pool.Exec(t.Context(), "UPDATE pglease.job SET state = 'ready' WHERE state = 'waiting'"); err == nil {
		t.Error("a second job became ready")
	}
	b.exec("DELETE FROM pglease.job WHERE state = 'running'")
	b.one() // the next one, though nobody completed the first
}

// A partition without jobs is forgotten after a day and not at once: until then its generation does
// not rest on the server's clock alone.
func TestPruneLeavesPartitionsForADay(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.enqueue(in("a"))
	claim := b.one()
	b.done(claim)
	const kept = "SELECT count(*) FROM pglease.job_partition"
	if _, err := b.Prune(t.Context(), 0); err != nil || value[int](b, kept) != 1 {
		t.Errorf("a partition that was just in use: %d are left, %v", value[int](b, kept), err)
	}
	// The epoch of an installation never changes; this is one that is two days older.
	b.exec("ALTER TABLE pglease.job_installation DISABLE TRIGGER job_installation_never_falls")
	b.exec("UPDATE pglease.job_installation SET epoch = epoch - interval '2 days'")
	if _, err := b.Prune(t.Context(), 0); err != nil || value[int](b, kept) != 0 {
		t.Errorf("two days later: %d are left, %v", value[int](b, kept), err)
	}
	b.enqueue(in("a"))
	if next := b.one(); next.PartitionToken().Fence() <= claim.PartitionToken().Fence() {
		t.Errorf("generation %d after %d", next.PartitionToken().Fence(), claim.PartitionToken().Fence())
	}
}
