package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pglease/pglease/cmd/reportpublisher/internal/sales"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/reportstore"
)

const enqueueHelp = `enqueue asks for a report and returns; a worker makes it. The report's name
ends in its period, which is the month.

There is one run of a report for a period, by a unique key in the database.
Asked for again, by whomever and whenever, enqueue adds nothing and says what
became of that run; the exit status is 0. With --again the run is begun anew,
because the sales were corrected: it must be over, or its job parked or dropped.

The files are read once, so that sales which are refused never become a job. The
worker reads them when it makes the report, under the same absolute paths. They
must be regular files: a pipe cannot be read by a second attempt.`

// An order is one call of enqueue.
type order struct {
	database
	report string
	queue  string
	again  bool
	json   bool

	month sales.Month
	files []string
	pool  *pgxpool.Pool
	store *reportstore.Store
	jobs  *jobs.Client
}

func newEnqueue() *cobra.Command {
	var o order
	c := &cobra.Command{
		Use:     "enqueue --report NAME FILE...",
		Short:   "Ask for a report; a worker publishes it",
		Long:    enqueueHelp,
		Example: "  reportpublisher enqueue --report report/2026-07 sales/*.csv",
		Args:    usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return usageError{err}
			}
			if err := o.read(c.Context(), args); err != nil {
				return malformed(err)
			}
			return o.withJobs(c.Context(), jobs.Config{Owner: defaultOwner()}, func(pool *pgxpool.Pool, store *reportstore.Store, client *jobs.Client) error {
				o.pool, o.store, o.jobs = pool, store, client
				return o.run(c.Context(), c.OutOrStdout())
			})
		},
	}
	reportFlag(c, &o.report)
	o.flags(c)
	queueFlag(c, &o.queue, defaultQueue)
	c.Flags().BoolVar(&o.again, "again", false, "begin the run anew, after a correction of the sales")
	c.Flags().BoolVar(&o.json, "json", false, "print one JSON object")
	return c
}

func (o *order) check() (err error) {
	if o.month, err = sales.MonthOf(o.report); err != nil {
		return err
	}
	if err := fence.CheckResource(stored(o.queue, o.report)); err != nil {
		return err
	}
	if err := (jobs.Job{Queue: o.queue, Partition: o.report}).Check(); err != nil {
		return err
	}
	_, err = o.config()
	return err
}

// read looks at the sales, and keeps the files' absolute paths.
func (o *order) read(ctx context.Context, paths []string) error {
	var problems sales.InputError
	for _, path := range paths {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		if info, err := os.Stat(path); path == sales.Stdin || (err == nil && !info.IsDir() && !info.Mode().IsRegular()) {
			problems = append(problems, sales.Problem{File: path, Reason: "is not a regular file, which a worker can read later"})
		}
		o.files = append(o.files, absolute)
	}
	if len(problems) > 0 {
		return problems
	}
	inputs, err := sales.FromPaths(paths, nil)
	if err == nil {
		_, err = sales.Read(ctx, o.month, inputs, sales.Limits{})
	}
	return err
}

// A receipt is what enqueue answers.
type receipt struct {
	Report  string `json:"report"`
	Period  string `json:"period"`
	Run     int    `json:"run"`
	Status  string `json:"status"`
	Job     int64  `json:"job,omitempty"`
	State   string `json:"state,omitempty"`   // of the job; empty where that is gone
	Version int64  `json:"version,omitempty"` // that the run published
	Added   bool   `json:"added"`             // by this call
}

func (o *order) run(ctx context.Context, out io.Writer) error {
	r, err := o.start(ctx, reportstore.Run{})
	if err == nil && !r.Added {
		r, err = o.meet(ctx)
	}
	if err != nil {
		return err
	}
	if r.Added {
		_ = o.jobs.Ring(ctx, o.queue) // a hint: workers poll
	}
	return o.answer(out, r)
}

// errThere undoes a job for a run that somebody has started already.
var errThere = errors.New("the run is there")

// start adds the job and starts its run in one transaction: the run after the one that was seen.
func (o *order) start(ctx context.Context, seen reportstore.Run) (receipt, error) {
	var r receipt
	t := task{Report: o.report, Period: o.month.String(), Run: seen.Number + 1, Files: o.files}
	payload, err := json.Marshal(t)
	if err != nil {
		return r, err
	}
	err = pgx.BeginTxFunc(ctx, o.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		receipts, err := o.jobs.EnqueueTx(ctx, tx, jobs.Job{Queue: o.queue, Partition: o.report, Payload: payload})
		if err != nil {
			return err
		}
		worker := "job/" + o.queue + "/" + strconv.FormatInt(receipts[0].ID, 10)
		var run reportstore.Run
		started := true
		if seen.Number == 0 {
			run, started, err = o.store.StartRunTx(ctx, tx, stored(o.queue, o.report), t.Period, worker)
		} else {
			run, err = o.store.RestartRunTx(ctx, tx, seen, worker)
		}
		if err == nil && !started {
			err = errThere
		}
		r = o.receipt(run)
		r.Added, r.State = true, string(receipts[0].State)
		return err
	})
	if errors.Is(err, errThere) {
		return receipt{}, nil
	}
	return r, err
}

// meet deals with a run that was started before.
func (o *order) meet(ctx context.Context) (receipt, error) {
	run, err := o.store.Run(ctx, stored(o.queue, o.report), o.month.String())
	if err != nil {
		return receipt{}, err
	}
	r := o.receipt(run)
	if r.Job > 0 {
		info, err := o.jobs.Job(ctx, r.Job)
		if err != nil && !errors.Is(err, jobs.ErrGone) {
			return r, err
		}
		r.State = string(info.State)
	}
	if !o.again {
		return r, nil
	}
	switch jobs.State(r.State) {
	case jobs.Ready, jobs.Waiting, jobs.Running:
		return r, fmt.Errorf("run %d of %s is under way: job %d is %s", r.Run, r.Report, r.Job, r.State)
	case jobs.Parked: // it would hold up the next one of its partition
		if err := o.jobs.Drop(ctx, r.Job); err != nil && !errors.Is(err, jobs.ErrGone) {
			return r, err
		}
	}
	return o.start(ctx, run)
}

func (o *order) receipt(run reportstore.Run) receipt {
	r := receipt{Report: o.report, Period: run.Period, Run: run.Number, Status: string(run.Status), Version: run.Version}
	if number, ok := strings.CutPrefix(run.Worker, "job/"+o.queue+"/"); ok {
		r.Job, _ = strconv.ParseInt(number, 10, 64) // what is none is no job of ours
	}
	return r
}

func (o *order) answer(out io.Writer, r receipt) error {
	if o.json {
		return json.NewEncoder(out).Encode(r)
	}
	var err error
	switch {
	case r.Added:
		_, err = fmt.Fprintf(out, "enqueued %s run %d as job %d\n", r.Report, r.Run, r.Job)
	case r.Status == string(reportstore.RunPublished):
		_, err = fmt.Fprintf(out, "%s run %d was published as version %d; nothing was added\n", r.Report, r.Run, r.Version)
	case r.State == "":
		_, err = fmt.Fprintf(out, "%s run %d was started and its job is gone; begin it anew with --again\n", r.Report, r.Run)
	default:
		_, err = fmt.Fprintf(out, "%s run %d was asked for before, job %d is %s; nothing was added\n", r.Report, r.Run, r.Job, r.State)
	}
	return err
}
