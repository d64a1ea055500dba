package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/pglease/pglease/pglease/jobs"
)

// One process may have an attempt that it lost, and the next one of the same job. What becomes of
// the one says nothing of the other.
func TestTwoAttemptsInOneCallAreToldApart_J2(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]func(bench, ...*jobs.Claim) error{
		"complete": func(b bench, c ...*jobs.Claim) error { return b.Complete(b.tb.Context(), c...) },
		"return":   func(b bench, c ...*jobs.Claim) error { return b.Return(b.tb.Context(), c...) },
		"extend":   func(b bench, c ...*jobs.Claim) error { return b.Extend(b.tb.Context(), c...) },
	} {
		b := setUp(t)
		b.enqueue(jobs.Job{})
		older := b.one()
		b.cutOff()
		newer := b.one()
		before := older.Remaining()
		err := step(b, newer, older)
		stale := jobs.StaleClaims(err)
		if len(stale) != 1 || stale[0].Fence != older.Token().Fence() || stale[0].Current != newer.Token().Fence() {
			t.Errorf("%s of both attempts: %v", name, err)
		}
		if older.Remaining() > before {
			t.Errorf("%s: the older attempt is trusted again", name)
		}
	}
}

// A worker that claims again what it lost keeps the new claim alive while the old handler ends.
func TestWorkerClaimsAgainWhatItLost_J2(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	id := b.enqueue(jobs.Job{})[0]
	handlers := make(chan *jobs.Claim)
	goOn := []chan struct{}{make(chan struct{}), make(chan struct{})}
	var r record
	works(t, b.pool, jobs.Config{Observer: &r, PollEvery: 20 * time.Millisecond, TTL: 3 * time.Second, HeartbeatEvery: 100 * time.Millisecond},
		func(_ context.Context, c *jobs.Claim) error {
			handlers <- c
			<-goOn[c.Attempt-1]
			return nil
		})
	<-handlers
	b.cutOff()
	<-handlers
	goOn[0] <- struct{}{}
	until(t, "the first attempt is over", func() bool { _, ok := r.find(jobs.EventStale); return ok })
	const later = "SELECT expires_at > claimed_at + interval '4 seconds' FROM pglease.job WHERE id = $1"
	until(t, "the second attempt lives by heartbeats", func() bool { return value[bool](b, later, id) })
	goOn[1] <- struct{}{}
	if info := b.eventually(id, jobs.Done); info.Attempt != 2 {
		t.Errorf("got %+v", info)
	}
}
