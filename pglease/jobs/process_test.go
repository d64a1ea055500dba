package jobs_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// These make the test binary a worker, so that one can be killed.
const (
	workerVariable = "PGLEASE_TEST_JOBS_WORKER_URL"
	ttlVariable    = "PGLEASE_TEST_JOBS_TTL"
)

// workAsProcess works until it is told to stop. A job's payload says what to do: "die" kills the
// process, "hang" hangs, and anything else is an effect at a fenced resource.
func workAsProcess(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	ttl, err := time.ParseDuration(os.Getenv(ttlVariable))
	if err != nil {
		return err
	}
	config := jobs.Config{
		Queue: queue, TTL: ttl, Concurrency: 8, PollEvery: 50 * time.Millisecond, StopTimeout: time.Second,
		RetryBase: 10 * time.Millisecond, RetryMax: 100 * time.Millisecond,
	}
	client, err := jobs.New(pool, config)
	if err != nil {
		return err
	}
	return jobs.Run(ctx, pool, config, func(ctx context.Context, c *jobs.Claim) error {
		switch string(c.Payload) {
		case `"die"`:
			return die()
		case `"hang"`:
			fmt.Println("claimed", c.ID) // the test reads it
			<-ctx.Done()
			return ctx.Err()
		}
		if c.Partition != "" {
			return deadlySaga(ctx, pool, c)
		}
		return effect(ctx, pool, client, c)
	})
}

// die kills this process, as nothing can that it could catch.
func die() error {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	return self.Kill()
}

// effect changes the fenced resource and completes the job in one transaction: whichever attempt
// does both has done it for good. The resource counts what it accepted, and from whom.
func effect(ctx context.Context, pool *pgxpool.Pool, client *jobs.Client, c *jobs.Claim) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		token := c.Token()
		tag, err := tx.Exec(ctx, `
INSERT INTO resource AS r (name, greatest_fence, applied) VALUES ($1, $2, 1)
ON CONFLICT (name) DO UPDATE SET greatest_fence = EXCLUDED.greatest_fence, applied = r.applied + 1
WHERE r.greatest_fence < EXCLUDED.greatest_fence`, token.Resource(), token.Fence())
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("%s refused fence %d", token.Resource(), token.Fence())
		}
		return client.CompleteTx(ctx, tx, c)
	})
}

const resourceTable = "CREATE TABLE resource (name text PRIMARY KEY, greatest_fence bigint NOT NULL, applied int NOT NULL)"

type process struct {
	cmd    *exec.Cmd
	output *bufio.Scanner
}

func startWorker(tb testing.TB, url string, ttl time.Duration) *process {
	tb.Helper()
	return startChild(tb, workerVariable+"="+url, ttlVariable+"="+ttl.String())
}

// startChild starts the test binary as one of the children.
func startChild(tb testing.TB, environment ...string) *process {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	p := &process{cmd: cmd, output: bufio.NewScanner(out)}
	tb.Cleanup(p.kill)
	return p
}

// kill is kill -9. It may be called again.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be gone
	_ = p.cmd.Wait()
}

// died waits for a worker that kills itself. One that does not leaves a job that nobody works on.
func (p *process) died(b bench, job int64) {
	b.tb.Helper()
	exited := make(chan error, 1)
	go func() { exited <- p.cmd.Wait() }()
	select {
	case err := <-exited:
		if err == nil {
			b.tb.Fatal("the worker stopped by itself")
		}
	case <-time.After(time.Minute):
		info, err := b.Job(b.tb.Context(), job)
		b.tb.Fatalf("the worker lives; the job is %+v, %v", info, err)
	}
}

// A killed worker's job runs again soon after the TTL.
func TestKilledWorkersJobRunsAgain_J4(t *testing.T) {
	t.Parallel()
	ttl, within := 2*time.Second, 15*time.Second // which are the seconds that the default promises
	if long() {
		ttl = jobs.DefaultTTL
	}
	url := pgleasetest.URL(t, migrations.Jobs)
	b := setUpOn(t, pools.Open(t, url, pools.Conns(4)))
	id := b.enqueue(jobs.Job{Payload: []byte(`"hang"`)})[0]
	first := startWorker(t, url, ttl)
	if !first.output.Scan() || first.output.Text() != "claimed "+strconv.FormatInt(id, 10) {
		t.Fatalf("the worker says %q", first.output.Text())
	}
	second := startWorker(t, url, ttl)
	killed := time.Now()
	first.kill()
	if !second.output.Scan() || second.output.Text() != "claimed "+strconv.FormatInt(id, 10) {
		t.Fatalf("the second worker says %q", second.output.Text())
	}
	took := time.Since(killed)
	t.Logf("it ran again after %v", took)
	if took > within {
		t.Errorf("it took %v", took)
	}
	if info := b.is(id, jobs.Running); info.Attempt != 2 {
		t.Errorf("got %+v", info)
	}
}

// A job that kills its worker each time is parked, and blocks nothing.
func TestJobThatKillsItsWorker_J3(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t, migrations.Jobs)
	b := setUpOn(t, pools.Open(t, url, pools.Conns(4)))
	b.exec(resourceTable)
	deadly := b.enqueue(jobs.Job{Payload: []byte(`"die"`), MaxAttempts: 3, Priority: jobs.MaxPriority})[0]
	good := b.enqueue(jobs.Job{}, jobs.Job{})
	until(t, "it is parked", func() bool {
		p := startWorker(t, url, 300*time.Millisecond)
		exited := make(chan struct{})
		go func() {
			defer close(exited)
			_ = p.cmd.Wait()
		}()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-exited:
				return false
			case <-tick.C:
				if info, err := b.Job(t.Context(), deadly); err != nil || info.State == jobs.Parked {
					if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
						t.Error(err)
					}
					<-exited
					return true
				}
			}
		}
	})
	info := b.is(deadly, jobs.Parked)
	if info.Attempt != 3 || info.LastError == "" {
		t.Errorf("got %+v", info)
	}
	last := startWorker(t, url, time.Second)
	good = append(good, b.enqueue(jobs.Job{})...) // when this one is done, the last worker listens to signals
	for _, id := range good {
		b.eventually(id, jobs.Done)
	}
	if err := last.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := last.cmd.Wait(); err != nil {
		t.Errorf("a worker that was told to stop: %v", err)
	}
}

// Workers are killed at any moment; each job has its effect once, and none is lost.
func TestSoakWithKilledWorkers(t *testing.T) {
	t.Parallel()
	total, every := 5000, 300*time.Millisecond
	if long() {
		total = 200_000
	}
	if testing.Short() {
		total = 500
	}
	url := pgleasetest.URL(t, migrations.Jobs)
	b := setUpOn(t, pools.Open(t, url, pools.Conns(4)))
	b.exec(resourceTable)
	b.exec("INSERT INTO pglease.job (queue, state, max_attempts, payload) SELECT $1, 'ready', 1000, '{}' FROM generate_series(1, $2::int)", queue, total)
	workers := make([]*process, 3)
	for i := range workers {
		workers[i] = startWorker(t, url, time.Second)
	}
	kills, before, moved := 0, 0, time.Now()
	killer := time.NewTicker(every)
	defer killer.Stop()
	for done := 0; done < total; done = value[int](b, "SELECT count(*) FROM pglease.job WHERE state = 'done'") {
		select {
		case <-killer.C:
			if done == before { // on a slow machine workers would be killed before they have begun
				if time.Since(moved) > 2*time.Minute {
					t.Fatalf("of %d jobs %d are done, and nothing moves: %s", total, done, value[string](b, "SELECT coalesce(json_agg(j), '[]')::text FROM (SELECT id, state, attempt, last_error FROM pglease.job WHERE state <> 'done' LIMIT 5) AS j"))
				}
				continue
			}
			before, moved = done, time.Now()
			victim := rand.IntN(len(workers))
			workers[victim].kill()
			workers[victim] = startWorker(t, url, time.Second)
			kills++
		case <-t.Context().Done():
			t.Fatal("not all were done")
		}
	}
	for _, p := range workers {
		p.kill()
	}
	applied := value[int](b, "SELECT count(*) FROM resource WHERE applied = 1")
	if all := value[int](b, "SELECT count(*) FROM resource"); applied != total || all != total {
		t.Errorf("%d of %d resources, %d of them changed once", all, total, applied)
	}
	t.Logf("%d kills, %d attempts that were cut off", kills, value[int](b, "SELECT count(*) FROM pglease.job WHERE attempt > 1"))
	if kills == 0 {
		t.Error("nobody was killed")
	}
}
