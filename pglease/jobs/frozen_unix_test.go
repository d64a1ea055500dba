//go:build unix

package jobs_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// stopperVariable makes the test binary a process that stops in the middle of moving partitions on.
const stopperVariable = "PGLEASE_TEST_JOBS_STOPPER_URL"

func init() {
	children[stopperVariable] = stopWhilePromoting
}

// stopWhilePromoting tends twice. The first time it stops as by kill -STOP, with the partitions locked.
func stopWhilePromoting(url string) error {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.MaxConns = 1
	config.ConnConfig.Tracer = &stopper{before: "name: Promote :many"}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := jobs.New(pool, jobs.Config{})
	if err != nil {
		return err
	}
	for range 2 {
		moved, err := client.Tend(ctx)
		fmt.Printf("moved %d: %v\n", moved, err)
	}
	return nil
}

// A stopper stops its process before a statement, the first time.
type stopper struct {
	before  string
	stopped bool
}

func (s *stopper) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !s.stopped && strings.Contains(data.SQL, s.before) {
		s.stopped = true
		goOn := make(chan os.Signal, 1)
		signal.Notify(goOn, syscall.SIGCONT)
		fmt.Println("stops")
		if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
			fmt.Println(err)
		}
		<-goOn // this thread may be the last to be stopped
	}
	return ctx
}

func (s *stopper) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A worker that is stopped with partitions in its hands does not keep the others from them.
//
//	process               test
//	locks the partition
//	stops
//	                      claims the partition's next job
//	goes on: an error
//	tends again
func TestAProcessThatStopsWhilePromoting(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t, migrations.Jobs)
	b := setUpOn(t, pools.Open(t, url, pools.Conns(4)))
	next := b.enqueue(in("a"), in("a"))[1]
	b.done(b.one()) // which leaves the partition to be moved on

	p := startChild(t, stopperVariable+"="+url)
	p.says(t, "stops")
	b.is(next, jobs.Waiting)
	until(t, "the partition moves on", func() bool {
		claims := b.claim(1)
		return len(claims) == 1 && claims[0].ID == next
	})
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// What the session's end looks like depends on what arrives first.
	if said := p.line(t); !strings.HasPrefix(said, "moved 0: jobs: tend") {
		t.Errorf("the process says %q", said)
	}
	p.says(t, "moved 0: <nil>")
}

// line returns the next line that the process prints.
func (p *process) line(t *testing.T) string {
	t.Helper()
	if !p.output.Scan() {
		t.Fatalf("the process has ended: %v", p.output.Err())
	}
	return p.output.Text()
}

func (p *process) says(t *testing.T, want string) {
	t.Helper()
	if said := p.line(t); said != want {
		t.Fatalf("the process says %q, want %q", said, want)
	}
}
