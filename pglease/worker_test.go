package pglease_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
)

// workerOrder tells a worker process what to do: wait for the resource so many times at once, and
// release it as soon as it is served; or, with no waiters, hold it until told to go on, and write.
type workerOrder struct {
	URL      string
	Resource string
	Waiters  int
	TTL      time.Duration // of the holder's lease, a second where it is zero

	DirectWake bool
}

// workerReport is what it says at the end.
type workerReport struct {
	Served     int
	Statements int64
	Looks      int64
	Err        string

	Token string // of the holder
	State string // as it saw its lease when it went on
	Wrote int64  // rows of the protected resource that its write changed
}

// statements counts what the process sends, on all of its connections.
type statements struct{ all, looks atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if !statement("Beat")(q.SQL) {
		s.all.Add(1)
	}
	if statement("Watch")(q.SQL) || statement("WatchOne")(q.SQL) {
		s.looks.Add(1)
	}
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// runWorker is the worker's main: it reads its order, and ends when its input does.
func runWorker(stdin io.Reader, stdout io.Writer) int {
	var order workerOrder
	decoder := json.NewDecoder(stdin)
	if err := decoder.Decode(&order); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var report workerReport
	if order.Waiters == 0 {
		report = holdAndWrite(context.Background(), order, decoder, json.NewEncoder(stdout))
	} else {
		report = work(context.Background(), order)
	}
	if err := json.NewEncoder(stdout).Encode(report); err != nil {
		return 1
	}
	return 0
}

func work(ctx context.Context, order workerOrder) (report workerReport) {
	var count statements
	config, err := pgxpool.ParseConfig(order.URL)
	if err != nil {
		return workerReport{Err: err.Error()}
	}
	config.MaxConns = 4
	config.ConnConfig.Tracer = &count
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return workerReport{Err: err.Error()}
	}
	defer pool.Close()
	client, err := pglease.New(ctx, pool, pglease.Config{DirectWake: order.DirectWake})
	if err != nil {
		return workerReport{Err: err.Error()}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range order.Waiters {
		wg.Go(func() {
			lease, err := client.Acquire(ctx, order.Resource)
			if err == nil {
				err = lease.Release(ctx)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				report.Err = err.Error()
				return
			}
			report.Served++
		})
	}
	wg.Wait()
	if err := client.Close(ctx); err != nil {
		report.Err = err.Error()
	}
	report.Statements, report.Looks = count.all.Load(), count.looks.Load()
	return report
}

// holdAndWrite acquires, says so, reads one word, and then asks its lease and writes, in this order.
func holdAndWrite(ctx context.Context, order workerOrder, in *json.Decoder, out *json.Encoder) workerReport {
	pool, err := pgxpool.New(ctx, order.URL)
	if err != nil {
		return workerReport{Err: err.Error()}
	}
	defer pool.Close()
	client, err := pglease.New(ctx, pool, pglease.Config{TTL: cmp.Or(order.TTL, time.Second)})
	if err != nil {
		return workerReport{Err: err.Error()}
	}
	lease, err := client.Acquire(ctx, order.Resource)
	if err != nil {
		return workerReport{Err: err.Error()}
	}
	report := workerReport{Token: lease.Token().String()}
	var goOn string
	if err := errors.Join(out.Encode(report), in.Decode(&goOn)); err != nil {
		return workerReport{Err: err.Error()}
	}
	report.State = lease.State().String()
	tag, err := pool.Exec(ctx, "UPDATE protected SET body = 'the holder''s', greatest_fence = $1 WHERE greatest_fence < $1", lease.Token().Fence())
	if err != nil {
		report.Err = err.Error()
	}
	report.Wrote = tag.RowsAffected()
	return report
}

// worker is a process that runs runWorker.
type worker struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out *json.Decoder
}

func startWorker(t *testing.T, order workerOrder) *worker {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &worker{cmd: cmd, in: json.NewEncoder(stdin), out: json.NewDecoder(stdout)}
	if err := w.in.Encode(order); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return w
}

// report waits for the end of the process.
func (w *worker) report(t *testing.T) (r workerReport) {
	t.Helper()
	if err := w.out.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if r.Err != "" {
		t.Error(r.Err)
	}
	return r
}

// kill ends the process with SIGKILL and waits until it is gone.
func (w *worker) kill(t *testing.T) {
	t.Helper()
	if err := w.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = w.cmd.Wait() // says that it was killed
}
