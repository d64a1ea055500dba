package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pglease/pglease/cmd/reportpublisher/internal/sales"
	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/reportstore"
)

const defaultQueue = "reports"

// A task is what the payload of a job says.
type task struct {
	Report string   `json:"report"`
	Period string   `json:"period"`
	Run    int      `json:"run"` // of the report for the period
	Files  []string `json:"files"`
}

// stored is the name under which workers publish a report: that of the partition which all jobs for
// the report are in. Its fence is the partition's generation. A lease of the report draws fences of
// its own, and the two have no order, so a report of the workers and one that is published under a
// lease are different rows of the store.
func stored(queue, report string) string { return jobs.PartitionResource(queue, report) }

// taskOf reads a claim's payload. What it refuses, no other attempt can do either.
func taskOf(claim *jobs.Claim) (t task, month sales.Month, err error) {
	if err = json.Unmarshal(claim.Payload, &t); err != nil {
		return t, month, jobs.Park(fmt.Errorf("the payload is none of reportpublisher's: %w", err))
	}
	if month, err = sales.MonthOf(t.Report); err != nil {
		return t, month, jobs.Park(err)
	}
	if t.Report != claim.Partition || t.Run < 1 {
		return t, month, jobs.Park(fmt.Errorf("the payload names run %d of %q, the partition is %q", t.Run, t.Report, claim.Partition))
	}
	return t, month, nil
}

// answerTime bounds a write that is not cut short with the claim.
const answerTime = 10 * time.Second

// do is one attempt at a job. Each step may be repeated by the next attempt, and is refused when
// that has begun: Establish makes the claim's fence known before the report is looked at.
func (w *work) do(ctx context.Context, claim *jobs.Claim) error {
	t, month, err := taskOf(claim)
	if err != nil {
		return err
	}
	token := claim.PartitionToken()
	w.tell(claim, happening{Event: "claimed", Report: t.Report})
	run, err := w.store.Run(ctx, token.Resource(), t.Period)
	switch {
	case errors.Is(err, reportstore.ErrNotFound):
		return jobs.Park(err)
	case err != nil:
		return err
	case run.Number != t.Run:
		w.tell(claim, happening{Event: "superseded", Report: t.Report, Run: run.Number})
		return nil // the job of that run does the work
	}
	if err := w.store.Establish(ctx, token, token.Resource()); err != nil {
		return err
	}
	now, err := w.store.Read(ctx, token.Resource())
	if err != nil && !errors.Is(err, reportstore.ErrNotFound) {
		return err
	}
	body, err := compute(ctx, month, t.Files)
	if err != nil {
		return err
	}
	w.tell(claim, happening{Event: "computed", Report: t.Report, Fence: token.Fence()})

	// From here on answers are waited for, whatever becomes of the claim: a write that is cut short
	// on its way may have been applied or not, and it is the fence that decides about it.
	answers, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	version := now.Version
	unchanged := version > 0 && bytes.Equal(now.Body, body) // as an attempt leaves it that died before its end
	if !unchanged {
		published, err := w.store.Publish(answers, token, reportstore.Report{ID: token.Resource(), Body: body, ExpectedVersion: version})
		if err != nil {
			w.tell(claim, happening{Event: "refused", Report: t.Report, Fence: token.Fence(), Error: err.Error()})
			return err
		}
		version = published.Version
	}
	w.tell(claim, happening{Event: "published", Report: t.Report, Version: version, Fence: token.Fence(), Unchanged: unchanged})
	if _, err := w.store.FinishRun(answers, token, token.Resource(), t.Period, t.Run, version); err != nil {
		w.tell(claim, happening{Event: "refused", Report: t.Report, Fence: token.Fence(), Error: err.Error()})
		return err
	}
	w.tell(claim, happening{Event: "finished", Report: t.Report, Run: t.Run, Version: version})
	return nil
}

// compute adds up the sales. Files that are not sales become none by waiting: a person has to look.
func compute(ctx context.Context, month sales.Month, files []string) ([]byte, error) {
	inputs, err := sales.FromPaths(files, nil)
	if err == nil {
		var sum *sales.Summary
		if sum, err = sales.Read(ctx, month, inputs, sales.Limits{}); err == nil {
			return sum.CSV()
		}
	}
	var problems sales.InputError
	if errors.As(err, &problems) {
		return nil, jobs.Park(malformed(err))
	}
	return nil, err
}
