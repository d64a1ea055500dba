//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/commandtest"
	"github.com/pglease/pglease/pglease/jobs"
)

// freezeVariable makes a worker's process stop itself right after it has told of the event.
const freezeVariable = "REPORTPUBLISHER_TEST_FREEZE"

func init() { asProcess = workAsProcess }

// workAsProcess is the worker as a process of its own.
func workAsProcess() int {
	event := os.Getenv(freezeVariable)
	if event == "" {
		main()
	}
	return run(context.Background(), os.Args[1:], os.Stdin, &freezer{out: os.Stdout, event: event}, os.Stderr)
}

// A freezer is a standard output that stops the process when an event passes, once: before whatever
// the worker does next. It waits for the signal that resumes the process, because one to stop may be
// for another of its threads to take, and this one would go on until that has been scheduled.
type freezer struct {
	out   io.Writer
	event string
	done  bool
}

func (f *freezer) Write(p []byte) (int, error) {
	n, err := f.out.Write(p)
	if !f.done && bytes.Contains(p, fmt.Appendf(nil, `"event":%q`, f.event)) {
		f.done = true
		resumed := make(chan os.Signal, 1)
		signal.Notify(resumed, syscall.SIGCONT)
		defer signal.Stop(resumed)
		if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
			return n, err
		}
		<-resumed
	}
	return n, err
}

// A workman is a worker's process, seen by the test.
type workman struct {
	t      *testing.T
	cmd    *exec.Cmd
	events chan happening
	stderr *bytes.Buffer
}

// hire starts a worker that freezes at an event, or never. Its claims are short.
func hire(t *testing.T, url, freeze string, args ...string) *workman {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"worker", "--json", "--ttl", "1s", "--database-url", url}, args...)
	w := &workman{t: t, cmd: exec.Command(program, args...), events: make(chan happening, 1000), stderr: new(bytes.Buffer)}
	w.cmd.Env = append(os.Environ(), freezeVariable+"="+freeze)
	w.cmd.Stderr = w.stderr
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill() // it may be gone
		_ = w.cmd.Wait()
	})
	go func() {
		defer close(w.events)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var h happening
			if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
				t.Errorf("%s: %v", lines.Text(), err)
			}
			w.events <- h
		}
	}()
	return w
}

// tells waits until the worker tells of the event, and returns it.
func (w *workman) tells(event string) happening {
	w.t.Helper()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	var others []happening
	for {
		select {
		case h, ok := <-w.events:
			if !ok {
				w.t.Fatalf("it ended and told of %+v, never of %q: %s", others, event, w.stderr)
			}
			if h.Event == event {
				return h
			}
			others = append(others, h)
		case <-late.C:
			w.t.Fatalf("it told of %+v, never of %q", others, event)
		}
	}
}

func (w *workman) signal(s syscall.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		w.t.Fatal(err)
	}
}

// ends waits for the end and fails the test unless the exit status is 0.
func (w *workman) ends() (rest []happening) {
	w.t.Helper()
	for h := range w.events {
		rest = append(rest, h)
	}
	if err := w.cmd.Wait(); err != nil {
		w.t.Fatalf("%v: %s", err, w.stderr)
	}
	return rest
}

// history is what the store has of july, as the command shows it.
func history(t *testing.T, url string) (versions, rejections []historyEntry) {
	t.Helper()
	r := call(t.Context(), nil, "history", "--json", "--database-url", url, "--report", july, "--queue", defaultQueue)
	var doc struct{ Versions, Rejections []historyEntry }
	if err := json.Unmarshal([]byte(r.Stdout), &doc); err != nil {
		t.Fatalf("%s%s: %v", r.Stdout, r.Stderr, err)
	}
	return doc.Versions, doc.Rejections
}

// isPublished fails the test unless july is there, once, by the attempt, and the run is over.
func isPublished(t *testing.T, url string, pool *pgxpool.Pool, attempt int) {
	t.Helper()
	call(t.Context(), nil, "read", "--database-url", url, "--report", july, "--queue", defaultQueue).Want(t, exitOK, golden(t), "")
	if versions, _ := history(t, url); len(versions) != 1 {
		t.Errorf("versions %+v, want one", versions)
	}
	answer := enqueue(t, url)
	if answer.Added || answer.Status != "published" || answer.Version != 1 || answer.State != "done" {
		t.Errorf("the run: %+v", answer)
	}
	info, err := client(t, pool).Job(t.Context(), answer.Job)
	if err != nil || info.State != jobs.Done || info.Attempt != attempt {
		t.Errorf("the job: %+v, %v", info, err)
	}
}

func TestWorkerPublishesAndStops(t *testing.T) {
	t.Parallel()
	url, pool := queuePlace(t)
	w := hire(t, url, "")
	asked := enqueue(t, url)
	published := w.tells("published")
	if published.Job != asked.Job || published.Report != july || published.Version != 1 || published.Fence == 0 || published.Unchanged {
		t.Errorf("got %+v", published)
	}
	w.tells("completed")
	isPublished(t, url, pool, 1)
	// The correction is a run of its own, under a greater fence.
	if again := enqueue(t, url, "--again"); !again.Added || again.Run != 2 {
		t.Errorf("again: %+v", again)
	}
	if second := w.tells("published"); second.Fence <= published.Fence || !second.Unchanged || second.Version != 1 {
		t.Errorf("the same sales: %+v", second)
	}
	w.tells("completed")
	w.signal(syscall.SIGTERM)
	if rest := w.ends(); len(rest) != 0 {
		t.Errorf("afterwards it told of %+v", rest)
	}
	if w.stderr.Len() > 0 {
		t.Errorf("stderr: %s", w.stderr)
	}
}

// TERM lets a worker finish what it has begun.
func TestWorkerFinishesWhenToldToStop(t *testing.T) {
	t.Parallel()
	url, pool := queuePlace(t)
	w := hire(t, url, "")
	lock, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := lock.Exec(t.Context(), "LOCK TABLE pglease.reports IN EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	enqueue(t, url)
	w.tells("claimed")
	w.signal(syscall.SIGTERM)
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.tells("completed")
	w.ends()
	isPublished(t, url, pool, 1)
}

// A worker that is killed before its write is followed by another, which does the whole of it.
func TestKilledWorker_J4(t *testing.T) {
	t.Parallel()
	url, pool := queuePlace(t)
	first := hire(t, url, "computed")
	enqueue(t, url)
	first.tells("computed")
	first.signal(syscall.SIGKILL)
	second := hire(t, url, "")
	if published := second.tells("published"); published.Attempt != 2 || published.Unchanged {
		t.Errorf("got %+v", published)
	}
	second.tells("completed")
	isPublished(t, url, pool, 2)
}

// A worker that is killed after its write leaves a report, which the next attempt recognises.
func TestWorkerKilledAfterItsWrite_J4(t *testing.T) {
	t.Parallel()
	url, pool := queuePlace(t)
	first := hire(t, url, "published")
	enqueue(t, url)
	first.tells("published")
	first.signal(syscall.SIGKILL)
	second := hire(t, url, "")
	if published := second.tells("published"); published.Attempt != 2 || !published.Unchanged {
		t.Errorf("got %+v", published)
	}
	second.tells("completed")
	isPublished(t, url, pool, 2)
}

// A worker is frozen with its write before it, and resumed when another has done the job: the store
// refuses its report, and the database refuses to end the job for it.
func TestFrozenWorkersWriteIsRefused_J2(t *testing.T) {
	t.Parallel()
	url, pool := queuePlace(t)
	first := hire(t, url, "computed")
	enqueue(t, url)
	late := first.tells("computed")
	second := hire(t, url, "")
	done := second.tells("completed")
	if done.Attempt != 2 {
		t.Errorf("got %+v", done)
	}
	first.signal(syscall.SIGCONT)
	if refused := first.tells("refused"); refused.Fence != late.Fence || refused.Attempt != 1 || !strings.Contains(refused.Error, "stale owner") {
		t.Errorf("its report: %+v", refused)
	}
	if stale := first.tells("stale"); stale.Attempt != 1 || stale.Job != done.Job {
		t.Errorf("its end: %+v", stale)
	}
	isPublished(t, url, pool, 2)
	if _, rejections := history(t, url); len(rejections) != 1 || rejections[0].Fence != late.Fence || rejections[0].Result != "stale_owner" {
		t.Errorf("rejections %+v", rejections)
	}
	first.signal(syscall.SIGTERM)
	second.signal(syscall.SIGTERM)
	if rest := second.ends(); slices.ContainsFunc(rest, func(h happening) bool { return h.Event == "claimed" }) {
		t.Errorf("the job was claimed again: %+v", rest)
	}
}

// A worker is frozen with nothing left to do but to complete its job, which another does meanwhile.
func TestFrozenWorkersCompletionIsRefused_J2(t *testing.T) {
	t.Parallel()
	url, pool := queuePlace(t)
	first := hire(t, url, "finished")
	asked := enqueue(t, url)
	first.tells("finished")
	second := hire(t, url, "")
	if published := second.tells("published"); published.Attempt != 2 || !published.Unchanged {
		t.Errorf("got %+v", published)
	}
	second.tells("completed")
	first.signal(syscall.SIGCONT)
	if stale := first.tells("stale"); stale.Attempt != 1 || !strings.Contains(stale.Error, jobs.ErrStaleClaim.Error()) {
		t.Errorf("its end: %+v", stale)
	}
	isPublished(t, url, pool, 2)
	var fence int64
	err := pool.QueryRow(t.Context(), "SELECT fence FROM pglease.job WHERE id = $1", asked.Job).Scan(&fence)
	if versions, _ := history(t, url); err != nil || fence <= versions[0].Fence {
		t.Errorf("the job was ended under %d, %v", fence, err)
	}
}

// Sales that can be read no more park the job at once, with the reason.
func TestWorkerParksWhatItCannotRead(t *testing.T) {
	t.Parallel()
	url, pool := queuePlace(t)
	enqueue(t, url)
	_, err := pool.Exec(t.Context(), `UPDATE pglease.job SET payload = (payload::jsonb || '{"files": ["/nowhere/sales.csv"]}')::json`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan commandtest.Result, 1)
	go func() { ended <- call(ctx, nil, "worker", "--database-url", url, "--owner", "clerk") }()
	state := func() (s string) {
		query(t, pool, "SELECT state FROM pglease.job", func(row pgx.Rows) error { return row.Scan(&s) })
		return s
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for state() != "parked" {
		<-look.C
	}
	stop()
	r := <-ended
	r.Want(t, exitOK, "job 1 attempt 1: failed, the job is parked: ", "")
	if !strings.Contains(r.Stdout, "/nowhere/sales.csv: no such file or directory") {
		t.Errorf("it says:\n%s", r.Stdout)
	}
	if got := enqueue(t, url, "--again"); !got.Added || got.Run != 2 {
		t.Errorf("again: %+v", got)
	}
}

// What other programs put into the queue is parked and not tried again and again.
func TestWorkerParksWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	url, pool := queuePlace(t)
	c := client(t, pool)
	for _, job := range []jobs.Job{
		{Payload: []byte(`"nonsense"`)},
		{Payload: []byte(`{"report": "report/nonsense", "run": 1}`)},
		{Payload: []byte(`{"report": "report/2026-07", "period": "2026-07", "run": 1}`), Partition: "report/2026-08"},
		{Payload: []byte(`{"report": "report/2026-06", "period": "2026-06", "run": 1}`), Partition: "report/2026-06"},
	} {
		job.Queue = defaultQueue
		if _, err := c.Enqueue(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	w := hire(t, url, "")
	for range 4 {
		if failed := w.tells("failed"); failed.State != "parked" || failed.Attempt != 1 {
			t.Errorf("got %+v", failed)
		}
	}
}
