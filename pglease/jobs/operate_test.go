package jobs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestParkedJobsAreListedRetriedAndDropped(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	all := b.enqueue(jobs.Job{}, jobs.Job{}, jobs.Job{}, jobs.Job{}, jobs.Job{Delay: time.Hour})
	for _, c := range b.claim(3) {
		if state, err := b.Fail(t.Context(), c, jobs.Failure{Reason: "poison", Park: true}); err != nil || state != jobs.Parked {
			t.Fatal(state, err)
		}
	}
	running := b.one()
	if counts, err := b.Count(t.Context(), queue); err != nil || counts != (jobs.Counts{Ready: 1, Running: 1, Parked: 3}) {
		t.Errorf("got %+v, %v", counts, err)
	}
	list, err := b.Parked(t.Context(), queue, 0, 2)
	if err != nil || len(list) != 2 || list[0].ID != all[0] || list[1].ID != all[1] || list[0].LastError != "poison" {
		t.Fatalf("got %+v, %v", list, err)
	}
	if list, err = b.Parked(t.Context(), queue, list[1].ID, 2); err != nil || len(list) != 1 || list[0].ID != all[2] {
		t.Fatalf("got %+v, %v", list, err)
	}
	if list, err := b.Parked(t.Context(), "another", 0, 2); err != nil || len(list) != 0 {
		t.Fatalf("got %+v, %v", list, err)
	}

	err = b.Retry(t.Context(), all[0], running.ID, 4711)
	var told *jobs.StateError
	if !errors.Is(err, jobs.ErrNotInState) || !errors.Is(err, jobs.ErrGone) || !errors.As(err, &told) || told.Actual != "running" {
		t.Errorf("got %v", err)
	}
	if c := b.one(); c.ID != all[0] || c.Attempt != 1 || c.LastError != "poison" {
		t.Errorf("got %+v", c)
	}
	if err := b.Drop(t.Context(), all[1], all[4]); err != nil {
		t.Error(err)
	}
	if info := b.is(all[1], jobs.Dropped); info.FinishedAt.IsZero() {
		t.Errorf("got %+v", info)
	}
	b.is(all[4], jobs.Dropped)
	if err := b.Drop(t.Context(), all[1]); !errors.Is(err, jobs.ErrNotInState) {
		t.Errorf("dropped twice: %v", err)
	}
	if err := b.Drop(t.Context(), running.ID); !errors.Is(err, jobs.ErrNotInState) {
		t.Errorf("dropped while running: %v", err)
	}
	if err := errors.Join(b.Drop(t.Context()), b.Retry(t.Context())); err != nil {
		t.Error(err)
	}
	if _, err := b.Job(t.Context(), 4711); !errors.Is(err, jobs.ErrGone) {
		t.Errorf("got %v", err)
	}
}

func TestPruneLeavesWhatIsNotOver(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.enqueue(jobs.Job{}, jobs.Job{}, jobs.Job{}, jobs.Job{})
	claims := b.claim(3)
	b.done(claims[0])
	if _, err := b.Fail(t.Context(), claims[1], jobs.Failure{Park: true}); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Prune(t.Context(), time.Hour); err != nil || n != 0 {
		t.Errorf("pruned %d, %v", n, err)
	}
	if n, err := b.Prune(t.Context(), 0); err != nil || n != 1 {
		t.Errorf("pruned %d, %v", n, err)
	}
	if err := b.Complete(t.Context(), claims[0]); !errors.Is(err, jobs.ErrStaleClaim) {
		t.Errorf("a job that is gone: %v", err)
	}
	if n := value[int](b, "SELECT count(*) FROM pglease.job"); n != 3 {
		t.Errorf("%d are left", n)
	}
}

// A backoff doubles, with jitter, up to its limit.
func TestBackoffGrows(t *testing.T) {
	t.Parallel()
	b := setUp(t, jobs.Config{RetryBase: 10 * time.Second, RetryMax: time.Minute, MaxAttempts: 6})
	b.enqueue(jobs.Job{})
	for _, want := range []float64{10, 20, 40, 60, 60} {
		if _, err := b.Fail(t.Context(), b.one(), jobs.Failure{Reason: "no"}); err != nil {
			t.Fatal(err)
		}
		got := value[float64](b, "SELECT extract(epoch FROM run_at - clock_timestamp())::float8 FROM pglease.job")
		if got < 0.74*want-1 || got > 1.26*want {
			t.Errorf("pause of %v s, want about %v s", got, want)
		}
		b.due()
	}
}

// Whatever the session is set to, and however pgx sends statements, all works.
func TestSessionsDoNotMatter(t *testing.T) {
	t.Parallel()
	settings := map[string]string{
		"search_path": "nowhere", "timezone": "Pacific/Kiritimati", "default_transaction_isolation": "serializable",
		"plan_cache_mode": "force_generic_plan",
	}
	for name, mode := range map[string]pgx.QueryExecMode{
		"cache statement": pgx.QueryExecModeCacheStatement, "cache describe": pgx.QueryExecModeCacheDescribe,
		"describe": pgx.QueryExecModeDescribeExec, "exec": pgx.QueryExecModeExec, "simple": pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pools.Open(t, pgleasetest.URL(t, migrations.Jobs), pools.Settings(settings),
				func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			everything(t, setUpOn(t, pool))
		})
	}
}

func TestAnotherSchema(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	const name = `Other "schema's`
	m, err := migrations.New(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Up(t.Context(), pool, migrations.Jobs); err != nil {
		t.Fatal(err)
	}
	client := newClient(t, pool, jobs.Config{Schema: name})
	if err := client.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	receipts, err := client.Enqueue(t.Context(), jobs.Job{Queue: queue, Partition: "a", Unique: jobs.Unique{Key: "u"}})
	if err != nil {
		t.Fatal(err)
	}
	claims, err := client.Claim(t.Context(), queue, 1)
	if err != nil || len(claims) != 1 || claims[0].ID != receipts[0].ID {
		t.Fatal(claims, err)
	}
	if err := client.Complete(t.Context(), claims...); err != nil {
		t.Error(err)
	}
	other := newClient(t, pool)
	if err := other.CheckSchema(t.Context()); !errors.Is(err, jobs.ErrSchema) {
		t.Errorf("got %v", err)
	}
	if _, err := other.Claim(t.Context(), queue, 1); !errors.Is(err, jobs.ErrSchema) {
		t.Errorf("got %v", err)
	}
}

// everything takes each kind of step once.
func everything(t *testing.T, b bench) {
	t.Helper()
	past := time.Now().Add(-time.Hour)
	all := b.enqueue(
		jobs.Job{Payload: []byte(`{"a":"b'c\\\"ü"}`), RunAt: past, Unique: jobs.Unique{Key: "u", For: time.Hour}},
		jobs.Job{Partition: "p"}, jobs.Job{Partition: "p"}, jobs.Job{Delay: time.Minute}, jobs.Job{Priority: -1},
	)
	claims := b.claim(10)
	if len(claims) != 3 || claims[0].ID != all[0] || string(claims[0].Payload) != `{"a":"b'c\\\"ü"}` {
		t.Fatalf("claimed %v of %v", ids(claims), all)
	}
	if d := claims[0].RunAt.Sub(past); d < -time.Millisecond || d > time.Millisecond {
		t.Errorf("time to run is off by %v", d)
	}
	if left := value[float64](b, "SELECT extract(epoch FROM min(expires_at) - clock_timestamp())::float8 FROM pglease.job"); left < 5 || left > 13 {
		t.Errorf("%v s left", left)
	}
	if err := b.Extend(t.Context(), claims...); err != nil {
		t.Error(err)
	}
	if err := b.Snooze(t.Context(), claims[1], time.Minute); err != nil {
		t.Error(err)
	}
	if _, err := b.Fail(t.Context(), claims[2], jobs.Failure{Reason: "ü'"}); err != nil {
		t.Error(err)
	}
	b.done(claims[0])
	if got, err := b.Enqueue(t.Context(), jobs.Job{Queue: queue, Unique: jobs.Unique{Key: "u"}}); err != nil || !got[0].Duplicate || got[0].State != jobs.Done {
		t.Errorf("got %+v, %v", got, err)
	}
	if got := value[bool](b, "SELECT bool_and(run_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '61 seconds') FROM pglease.job WHERE state = 'ready'"); !got {
		t.Error("a time to run is not within a minute")
	}
	if _, err := b.Prune(t.Context(), time.Hour); err != nil {
		t.Error(err)
	}
	if err := b.Ring(t.Context(), queue); err != nil {
		t.Error(err)
	}
	chain := []jobs.Job{{Queue: "chain", Payload: []byte(`{"n": 1}`), RunAt: past}, {Queue: "chain", Payload: []byte(`{"n": 2}`)}}
	b.enqueue(chain...)
	first, err := b.Claim(t.Context(), "chain", 1)
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	if next, err := b.CompleteAndClaim(t.Context(), first[0], 1); err != nil || len(next) != 1 || string(next[0].Payload) != `{"n": 2}` {
		t.Error(next, err)
	} else if last, err := b.CompleteAndClaim(t.Context(), next[0], 1); err != nil || len(last) != 0 {
		t.Error(last, err)
	}
	b.exec("CREATE TABLE public.charges (n int)")
	if got, repeated, err := once(b, "k", func(context.Context, pgx.Tx) (charge, error) { return charge{4}, nil }); err != nil || repeated || got.Number != 4 {
		t.Error(got, repeated, err)
	}
	if got, repeated, err := once(b, "k", func(context.Context, pgx.Tx) (charge, error) { return charge{5}, nil }); err != nil || !repeated || got.Number != 4 {
		t.Error(got, repeated, err)
	}
	outbox, err := b.Outbox(outboxName)
	if err != nil {
		t.Fatal(err)
	}
	p := &post{bench: b, outbox: outbox, delivered: map[string][]string{}}
	p.committed(message("a", "\x00\xff"), jobs.Message{})
	p.runs(p.relay(1), 2)
	p.got("a", "\x00\xff")
}
