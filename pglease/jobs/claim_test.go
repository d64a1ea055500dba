package jobs_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/jobs"
)

func TestClaimsComeInOrder(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	past := time.Now().Add(-time.Hour)
	ids1 := b.enqueue(
		jobs.Job{Priority: 0},
		jobs.Job{Priority: -2},
		jobs.Job{Priority: 2},
		jobs.Job{Priority: 0, RunAt: past.Add(time.Minute)},
		jobs.Job{Priority: 0, RunAt: past},
		jobs.Job{Priority: 2, Delay: time.Hour},
		jobs.Job{Priority: 0},
		jobs.Job{Queue: "another", Priority: 2},
	)
	want := []int64{ids1[2], ids1[4], ids1[3], ids1[0], ids1[6], ids1[1]}
	if got := ids(b.claim(100)); !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
	b.none()
}

func TestClaimCarriesWhatWasEnqueued(t *testing.T) {
	t.Parallel()
	b := setUp(t, jobs.Config{Owner: "W1"})
	payload := `{"b": 1.0, "a": "\ud83d\udcc8 \\u0000 \"", "a": 1e2}`
	id := b.enqueue(jobs.Job{Payload: []byte(payload), Priority: 1, MaxAttempts: 3})[0]
	c := b.one()
	if c.ID != id || c.Queue != queue || c.Attempt != 1 || c.MaxAttempts != 3 || c.Priority != 1 || string(c.Payload) != payload ||
		c.Partition != "" || c.LastError != "" || c.CreatedAt.IsZero() || c.RunAt.IsZero() {
		t.Errorf("got %+v", c)
	}
	if left := c.Remaining(); left <= 0 || left > jobs.DefaultTTL {
		t.Errorf("%v remain", left)
	}
	info := b.is(id, jobs.Running)
	if info.Worker != "W1" || info.Fence != c.Token().Fence() || info.Attempt != 1 {
		t.Errorf("got %+v", info)
	}
	if !c.PartitionToken().IsZero() {
		t.Errorf("partition token %v", c.PartitionToken())
	}
	b.done(c)
	if info := b.is(id, jobs.Done); info.FinishedAt.IsZero() {
		t.Errorf("got %+v", info)
	}
	nothing := b.enqueue(jobs.Job{})[0]
	if c := b.one(); c.ID != nothing || string(c.Payload) != "null" {
		t.Errorf("got %q", c.Payload)
	}
}

// The fence grows with each claim, also where the attempt does not, and where the row came back
// from before the last claims.
func TestFenceGrowsWithEachClaim(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	id := b.enqueue(jobs.Job{})[0]
	var last fence.Token
	next := func(wantAttempt int) *jobs.Claim {
		t.Helper()
		c := b.one()
		if c.Attempt != wantAttempt {
			t.Errorf("attempt %d, want %d", c.Attempt, wantAttempt)
		}
		if !last.IsZero() {
			if order, err := last.Compare(c.Token()); err != nil || order >= 0 {
				t.Errorf("%v, then %v: %d, %v", last, c.Token(), order, err)
			}
		}
		last = c.Token()
		return c
	}
	if err := b.Return(t.Context(), next(1)); err != nil {
		t.Fatal(err)
	}
	if err := b.Snooze(t.Context(), next(1), time.Hour); err != nil {
		t.Fatal(err)
	}
	b.none()
	b.due()
	if state, err := b.Fail(t.Context(), next(1), jobs.Failure{Reason: "no", Delay: jobs.NoDelay}); err != nil || state != jobs.Ready {
		t.Fatal(state, err)
	}
	next(2)
	if b.cutOff() != 1 {
		t.Error("the claim was not cut off")
	}
	next(3)
	b.exec("ALTER TABLE pglease.job DISABLE TRIGGER job_fence_never_falls")
	b.exec("UPDATE pglease.job SET fence = 1, state = 'ready', attempt = 0 WHERE id = $1", id)
	b.exec("ALTER TABLE pglease.job ENABLE TRIGGER job_fence_never_falls")
	next(1)
	if _, err := b.pool.Exec(t.Context(), "UPDATE pglease.job SET fence = 1"); err == nil {
		t.Error("the fence could be lowered")
	}
}

// Each step of a claim that is over touches no row, and says so.
func TestStaleClaimIsToldSo_J2(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	id := b.enqueue(jobs.Job{Payload: []byte(`1`)})[0]
	stale := b.one()
	b.cutOff()
	for _, current := range []jobs.State{jobs.Ready, jobs.Running} {
		if current == jobs.Running {
			b.one()
		}
		for name, step := range map[string]func() error{
			"complete": func() error { return b.Complete(t.Context(), stale) },
			"extend":   func() error { return b.Extend(t.Context(), stale) },
			"return":   func() error { return b.Return(t.Context(), stale) },
			"snooze":   func() error { return b.Snooze(t.Context(), stale, time.Minute) },
			"fail": func() error {
				_, err := b.Fail(t.Context(), stale, jobs.Failure{Reason: "late"})
				return err
			},
		} {
			before := b.is(id, current)
			err := step()
			var told *jobs.StaleClaimError
			if !errors.Is(err, jobs.ErrStaleClaim) || !errors.Is(err, fence.ErrStaleOwner) || !errors.As(err, &told) {
				t.Errorf("%s, job %s: got %v", name, current, err)
			} else if told.ID != id || told.Attempt != 1 || told.State != current || (current == jobs.Running) != (told.Current > told.Fence) {
				t.Errorf("%s, job %s: got %+v", name, current, told)
			}
			if after := b.is(id, current); after.Attempt != before.Attempt || after.LastError != before.LastError || !after.RunAt.Equal(before.RunAt) {
				t.Errorf("%s changed %+v to %+v", name, before, after)
			}
		}
	}
}

// Of a batch the good claims are done and the stale ones named.
func TestBatchTellsStaleOnes(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.enqueue(jobs.Job{}, jobs.Job{}, jobs.Job{}, jobs.Job{})
	claims := b.claim(4)
	b.exec("DELETE FROM pglease.job WHERE id = $1", claims[1].ID)
	b.done(claims[2])
	again := b.Return(t.Context(), claims[3])
	if again != nil {
		t.Fatal(again)
	}
	err := b.Complete(t.Context(), claims...)
	stale := jobs.StaleClaims(err)
	if len(stale) != 2 || stale[0].ID != claims[1].ID || stale[0].State != "" || stale[1].ID != claims[3].ID || stale[1].State != jobs.Ready {
		t.Errorf("got %v", err)
	}
	b.is(claims[0].ID, jobs.Done)
	b.is(claims[3].ID, jobs.Ready)
	// Completing again under the same claim is no error: a lost reply can be repeated.
	b.done(claims[0])
	b.done(claims[0], claims[2])
	if err := b.Extend(t.Context(), claims[0]); !errors.Is(err, jobs.ErrStaleClaim) {
		t.Errorf("extend after complete: %v", err)
	}
}

func TestExtendGivesTheWholeTimeAgain(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.enqueue(jobs.Job{}, jobs.Job{})
	claims := b.claim(2)
	b.exec("UPDATE pglease.job SET expires_at = clock_timestamp() + interval '1 second'")
	if err := b.Extend(t.Context(), claims...); err != nil {
		t.Fatal(err)
	}
	left := value[float64](b, "SELECT extract(epoch FROM min(expires_at) - clock_timestamp())::float8 FROM pglease.job")
	if left < 10 || left > 12 {
		t.Errorf("%v s left", left)
	}
	// A clock that was set back does not shorten a claim.
	b.exec("UPDATE pglease.job SET expires_at = clock_timestamp() + interval '1 hour'")
	if err := b.Extend(t.Context(), claims...); err != nil {
		t.Fatal(err)
	}
	if left := value[float64](b, "SELECT extract(epoch FROM min(expires_at) - clock_timestamp())::float8 FROM pglease.job"); left < 3000 {
		t.Errorf("%v s left", left)
	}
}

func TestFailuresEndInParking_J3(t *testing.T) {
	t.Parallel()
	b := setUp(t, jobs.Config{MaxAttempts: 3})
	id := b.enqueue(jobs.Job{})[0]
	for attempt := 1; attempt <= 3; attempt++ {
		c := b.one()
		if attempt == 2 {
			b.cutOff() // its worker dies
		} else if _, err := b.Fail(t.Context(), c, jobs.Failure{Reason: "kaput"}); err != nil {
			t.Fatal(err)
		}
		b.due()
	}
	info := b.is(id, jobs.Parked)
	if info.LastError != "kaput" || info.Attempt != 3 {
		t.Errorf("got %+v", info)
	}
	b.none()
}
