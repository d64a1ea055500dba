package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/jobs"
)

// works runs a worker beside the test; stop ends it and waits.
func works(tb testing.TB, pool *pgxpool.Pool, config jobs.Config, handler jobs.Handler) (stop func()) {
	tb.Helper()
	config.Queue = queue
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan error, 1)
	go func() { ended <- jobs.Run(ctx, pool, config, handler) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					tb.Errorf("Run: %v", err)
				}
			case <-time.After(2 * time.Minute): // what its handlers wait for the failed test does not do
				tb.Error("Run does not return")
			}
		})
	}
	tb.Cleanup(stop)
	return stop
}

func (b bench) eventually(id int64, want jobs.State) jobs.Info {
	b.tb.Helper()
	var info jobs.Info
	until(b.tb, fmt.Sprintf("job %d is %s", id, want), func() bool {
		var err error
		if info, err = b.Job(b.tb.Context(), id); err != nil {
			b.tb.Fatal(err)
		}
		return info.State == want
	})
	return info
}

// hours is a poll that never comes in a test: what happens, a notification brought about.
const hours = 10 * time.Hour

func TestWorkerHasNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec("INSERT INTO pglease.job (queue, state, max_attempts, payload) SELECT $1, 'ready', 3, '{}' FROM generate_series(1, 500)", queue)
	var now, most atomic.Int64
	works(t, b.pool, jobs.Config{Concurrency: 7, PollEvery: 50 * time.Millisecond}, func(context.Context, *jobs.Claim) error {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		return nil
	})
	until(t, "all are done", func() bool {
		counts, err := b.Count(t.Context(), queue)
		if err != nil || counts.Running > 7 {
			t.Fatal(counts, err)
		}
		return counts == jobs.Counts{}
	})
	if most.Load() > 7 {
		t.Errorf("%d at once", most.Load())
	}
}

// A worker that waits is rung for what is enqueued, and looks again by itself for the rest.
func TestNotificationWakesTheWorker(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	works(t, b.pool, jobs.Config{PollEvery: hours}, func(context.Context, *jobs.Claim) error { return nil })
	waits := func() bool { return value[bool](b, "SELECT coalesce(bool_or(waits), false) FROM pglease.job_bell") }
	for range 3 {
		until(t, "the worker waits", waits)
		b.eventually(b.enqueue(jobs.Job{})[0], jobs.Done)
	}
	until(t, "the worker waits", waits)
	var receipts []jobs.Receipt
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) (err error) {
		receipts, err = b.EnqueueTx(t.Context(), tx, jobs.Job{Queue: queue})
		return err
	})
	if err = errors.Join(err, b.Ring(t.Context(), queue)); err != nil {
		t.Fatal(err)
	}
	b.eventually(receipts[0].ID, jobs.Done)
	// A partition moves on without a poll.
	until(t, "the worker waits", waits)
	chain := b.enqueue(in("a"), in("a"), in("a"))
	b.eventually(chain[2], jobs.Done)
}

func TestPollingFindsWhatWasNotRung(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	works(t, b.pool, jobs.Config{PollEvery: 20 * time.Millisecond}, func(context.Context, *jobs.Claim) error { return nil })
	b.exec("INSERT INTO pglease.job (queue, state, max_attempts, payload) VALUES ($1, 'ready', 3, '{}')", queue)
	until(t, "it is done", func() bool { return value[int](b, "SELECT count(*) FROM pglease.job WHERE state = 'done'") == 1 })
}

func TestHandlersErrorDecides(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	cause := errors.New("kaput")
	handlers := map[string]error{
		`"fail"`: cause, `"retry"`: fmt.Errorf("again: %w", jobs.RetryAfter(time.Hour, cause)), `"park"`: jobs.Park(cause),
		`"snooze"`: fmt.Errorf("later: %w", jobs.SnoozeFor(2*time.Hour)), `"nul"`: errors.New("a\x00b\xff" + strings.Repeat("ü", 4096)),
	}
	want := map[string]int64{}
	for payload := range handlers {
		want[payload] = b.enqueue(jobs.Job{Payload: []byte(payload)})[0]
	}
	panics := b.enqueue(jobs.Job{Payload: []byte(`"panic"`)})[0]
	var calls sync.WaitGroup
	calls.Add(len(handlers) + 1)
	works(t, b.pool, jobs.Config{PollEvery: hours, RetryBase: time.Hour, RetryMax: time.Hour}, func(_ context.Context, c *jobs.Claim) error {
		defer calls.Done()
		if c.ID == panics {
			panic("oh no")
		}
		return handlers[string(c.Payload)]
	})
	calls.Wait()
	in := func(info jobs.Info) time.Duration {
		return time.Duration(value[float64](b, "SELECT extract(epoch FROM $1::timestamptz - clock_timestamp())::float8", info.RunAt) * float64(time.Second))
	}
	settled := func(id int64, state jobs.State) jobs.Info {
		until(t, "it has ended", func() bool { return b.eventually(id, state).State == state })
		return b.eventually(id, state)
	}
	if info := settled(want[`"fail"`], jobs.Ready); info.LastError != "kaput" || info.Attempt != 1 || in(info) < 40*time.Minute || in(info) > 80*time.Minute {
		t.Errorf("fail: %+v", info)
	}
	if info := settled(want[`"retry"`], jobs.Ready); info.LastError != "again: kaput" || in(info) < 59*time.Minute || in(info) > time.Hour {
		t.Errorf("retry: %+v", info)
	}
	if info := settled(want[`"park"`], jobs.Parked); info.LastError != "kaput" || info.Attempt != 1 {
		t.Errorf("park: %+v", info)
	}
	if info := settled(want[`"snooze"`], jobs.Ready); info.Attempt != 0 || in(info) < 119*time.Minute {
		t.Errorf("snooze: %+v", info)
	}
	if info := settled(want[`"nul"`], jobs.Ready); !strings.HasPrefix(info.LastError, "a\uFFFDb\uFFFDüü") || len(info.LastError) > jobs.MaxErrorLength {
		t.Errorf("nul: %d bytes", len(info.LastError))
	}
	if info := settled(panics, jobs.Ready); !strings.HasPrefix(info.LastError, "panic: oh no\n") {
		t.Errorf("panic: %+v", info)
	}
}

// A handler that did its work and completed in one transaction has nothing left to be completed.
func TestHandlerMayCompleteItself(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec("CREATE TABLE effect (job bigint)")
	id := b.enqueue(jobs.Job{})[0]
	stop := works(t, b.pool, jobs.Config{PollEvery: hours}, func(ctx context.Context, c *jobs.Claim) error {
		return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO effect VALUES ($1)", c.ID); err != nil {
				return err
			}
			return b.CompleteTx(ctx, tx, c)
		})
	})
	b.eventually(id, jobs.Done)
	stop()
	if n := value[int](b, "SELECT count(*) FROM effect"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

func TestRunRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	nothing := func(context.Context, *jobs.Claim) error { return nil }
	for name, c := range map[string]jobs.Config{
		"no queue": {}, "slash": {Queue: "a/b"}, "negative": {Queue: queue, TTL: -1}, "schema name": {Queue: queue, Schema: "pg_x"},
	} {
		if err := jobs.Run(t.Context(), b.pool, c, nothing); !errors.Is(err, jobs.ErrInvalidConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := jobs.Run(t.Context(), b.pool, jobs.Config{Queue: queue}, nil); !errors.Is(err, jobs.ErrInvalidConfig) {
		t.Errorf("no handler: %v", err)
	}
	if err := jobs.Run(t.Context(), b.pool, jobs.Config{Queue: queue, Schema: "elsewhere"}, nothing); !errors.Is(err, jobs.ErrSchema) {
		t.Errorf("no tables: %v", err)
	}
}
