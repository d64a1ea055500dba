package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/reportstore"
)

const workerHelp = `worker does the jobs that enqueue added, until it is told to stop. Any number of
workers may run on a queue, on any machines that see the files.

For each job it makes the claim's fence known to the store, reads the report's
version, reads the files, adds up the month, publishes under the fence, ends the
run, and completes the job. A worker that was killed or frozen loses its claim
--ttl after its last heartbeat; another does the job. What the first one still
writes then carries the older fence: the store refuses it, and the database
refuses to complete the job for it.

The fence is the generation of the report's partition in the queue. A report of
the workers is therefore another one than a report of the same name that publish
wrote: "read" and "history" show it with --queue.

Sales that cannot be read park the job at once, all else that fails is tried
again after a pause. TERM, INT and HUP make it claim no more, finish what it has
begun for up to --stop-timeout, and give the rest back; a second one ends it.
The exit status is then 0.

With --json each line of the output is one object:

  {"event":"published","at":"...","job":7,"attempt":1,"report":"report/2026-07",
   "version":1,"fence":42}

  claimed     an attempt begins
  computed    the files are read, and the report goes to the store
  published   the store has it, as "version"; "unchanged" where it had it before
  finished    the run is over
  completed   so is the job
  refused     a write was refused, by "error"
  stale       the end of the attempt was refused: another has the job
  failed      by "error"; "state" says whether it is tried again or parked
  lost        the claim is over, or was not confirmed in time
  returned    the worker stops, and gave the job back
  superseded  the run was begun again since; nothing was done
  cut_off     another worker's claim was ended, because nothing is heard of it`

// work is what all attempts of a worker share.
type work struct {
	store *reportstore.Store
	json  bool

	mu  sync.Mutex
	out io.Writer
}

func newWorker() *cobra.Command {
	var d database
	var w work
	config := jobs.Config{}
	c := &cobra.Command{
		Use:     "worker",
		Short:   "Publish the reports that were enqueued",
		Long:    workerHelp,
		Example: "  reportpublisher worker --queue reports --json",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			w.out = c.OutOrStdout()
			if config.Owner == "" {
				config.Owner = defaultOwner()
			}
			config.Logger = slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelError}))
			config.Observer = jobs.ObserverFunc(w.observe)
			return d.withJobs(c.Context(), config, func(pool *pgxpool.Pool, store *reportstore.Store, _ *jobs.Client) error {
				w.store = store
				config.Schema = d.schema
				err := jobs.Run(c.Context(), pool, config, w.do)
				if errors.Is(err, jobs.ErrInvalidConfig) {
					return usageError{err}
				}
				return err
			})
		},
	}
	d.flags(c)
	queueFlag(c, &config.Queue, defaultQueue)
	c.Flags().StringVar(&config.Owner, "owner", "", "how others see this worker (default host and process id)")
	c.Flags().DurationVar(&config.TTL, "ttl", jobs.DefaultTTL, "how long a claim lives without a heartbeat")
	c.Flags().IntVar(&config.Concurrency, "concurrency", 2, "how many jobs at the same time")
	c.Flags().DurationVar(&config.StopTimeout, "stop-timeout", jobs.DefaultStopTimeout, "how long to finish what was begun")
	c.Flags().BoolVar(&w.json, "json", false, "print one JSON object for each event")
	return c
}

func queueFlag(c *cobra.Command, queue *string, fallback string) {
	c.Flags().StringVar(queue, "queue", fallback, "the queue of the jobs")
}

// A happening is one line of the output.
type happening struct {
	Event     string    `json:"event"`
	At        time.Time `json:"at"`
	Job       int64     `json:"job"`
	Attempt   int       `json:"attempt"`
	Report    string    `json:"report,omitempty"`
	Run       int       `json:"run,omitempty"`
	Version   int64     `json:"version,omitempty"`
	Unchanged bool      `json:"unchanged,omitempty"`
	Fence     int64     `json:"fence,omitempty"`
	State     string    `json:"state,omitempty"`
	Worker    string    `json:"worker,omitempty"`
	Error     string    `json:"error,omitempty"`
}

func (w *work) tell(claim *jobs.Claim, h happening) {
	h.Job, h.Attempt = claim.ID, claim.Attempt
	w.print(h)
}

// observe tells how claims end, which is known to jobs.Run alone.
func (w *work) observe(e jobs.Event) {
	h := happening{Event: string(e.Kind), Job: e.Job, Attempt: e.Attempt, State: string(e.State), Worker: e.Worker}
	if e.Err != nil {
		h.Error = e.Err.Error()
	}
	switch e.Kind {
	case jobs.EventCompleted:
		h.State = ""
	case jobs.EventFailed, jobs.EventStale, jobs.EventLost, jobs.EventReturned, jobs.EventUnknown, jobs.EventCutOff:
	default:
		return
	}
	w.print(h)
}

// print writes a line. That it failed is remembered by the output, and makes the exit status 1; the
// work goes on.
func (w *work) print(h happening) {
	h.At = time.Now().UTC()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.json {
		_ = json.NewEncoder(w.out).Encode(h)
		return
	}
	_, _ = fmt.Fprintln(w.out, h)
}

// String is the line for people.
func (h happening) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %d attempt %d: %s", h.Job, h.Attempt, h.Event)
	if h.Report != "" {
		fmt.Fprintf(&b, " %s", h.Report)
	}
	if h.Run > 0 {
		fmt.Fprintf(&b, " run %d", h.Run)
	}
	if h.Version > 0 {
		fmt.Fprintf(&b, " version %d", h.Version)
	}
	if h.Unchanged {
		b.WriteString(", as it was,")
	}
	if h.Fence > 0 {
		fmt.Fprintf(&b, " under fence %d", h.Fence)
	}
	if h.Worker != "" {
		fmt.Fprintf(&b, " from %s", h.Worker)
	}
	if h.State != "" {
		fmt.Fprintf(&b, ", the job is %s", h.State)
	}
	if h.Error != "" {
		fmt.Fprintf(&b, ": %s", strings.ReplaceAll(h.Error, "\n", "; "))
	}
	return b.String()
}
