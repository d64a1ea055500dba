package demo

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/cmd/reportpublisher/internal/sales"
	"github.com/pglease/pglease/cmd/reportpublisher/sample"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/reportstore"
)

// A Worker is what one of the two processes is told.
type Worker struct {
	Name     string
	URL      string
	Schema   string
	Report   string
	TTL      time.Duration
	Unfenced bool
	Pauses   []string // where it waits for the director
	Files    []string // of the sample
}

// Run does the worker's job once: acquire, establish, read, compute, check, write, release. It
// reports each step to out, and at its pauses reads a line from in.
func (w Worker) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	run := &workerRun{Worker: w, in: bufio.NewReader(in), out: json.NewEncoder(out)}
	err := run.whole(ctx)
	if err != nil {
		run.tell(event{Kind: eventFailed, Text: err.Error()})
	}
	return err
}

// A workerRun is one call of Run.
type workerRun struct {
	Worker
	in     *bufio.Reader
	out    *json.Encoder
	client *pglease.Client
	lease  *pglease.Lease
	store  store
}

func (w *workerRun) whole(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, w.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	if w.store, err = newStore(pool, w.Worker); err != nil {
		return err
	}
	w.client, err = pglease.New(ctx, pool, pglease.Config{Owner: w.Name, Schema: w.Schema, TTL: w.TTL})
	if err != nil {
		return err
	}
	return errors.Join(w.job(ctx), w.client.Close(context.WithoutCancel(ctx)))
}

func (w *workerRun) job(ctx context.Context) error {
	if err := w.acquire(ctx); err != nil {
		return err
	}
	version, err := w.establish(ctx)
	if err != nil {
		return err
	}
	body, err := w.compute(ctx)
	if err != nil {
		return err
	}
	if err := w.check(); err != nil {
		return err
	}
	if err := w.write(ctx, body, version); err != nil {
		return err
	}
	return w.release(ctx)
}

func (w *workerRun) acquire(ctx context.Context) error {
	if err := w.pause(pauseAcquire); err != nil {
		return err
	}
	lease, err := w.client.TryAcquire(ctx, w.Report)
	var held *pglease.HeldError
	if errors.As(err, &held) {
		w.tell(event{Kind: eventWaiting, Owner: held.Owner, RemainingMS: held.Remaining.Milliseconds()})
		lease, err = w.client.Acquire(ctx, w.Report)
	}
	if err != nil {
		return err
	}
	w.lease = lease
	w.tell(event{Kind: eventAcquired, Lease: lease.Token().LeaseID().String(), Fence: lease.Token().Fence()})
	return nil
}

// establish makes the fence known to the store before anything is read, so that what is read can
// no longer be changed by an earlier owner.
func (w *workerRun) establish(ctx context.Context) (version int64, err error) {
	if err := w.store.Establish(ctx, w.lease.Token(), w.Report); err != nil {
		return 0, err
	}
	report, err := w.store.Read(ctx, w.Report)
	if err != nil && !errors.Is(err, reportstore.ErrNotFound) {
		return 0, err
	}
	w.tell(event{Kind: eventEstablished, Fence: w.lease.Token().Fence(), Version: report.Version})
	return report.Version, nil
}

func (w *workerRun) compute(ctx context.Context) ([]byte, error) {
	month, err := sales.MonthOf(w.Report)
	if err != nil {
		return nil, err
	}
	sum, err := sales.Read(ctx, month, sales.FromFS(sample.Files, w.Files), sales.Limits{})
	if err != nil {
		return nil, err
	}
	body, err := sum.CSV()
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(body)
	w.tell(event{Kind: eventComputed, Files: sum.Files, Rows: sum.Rows, Total: sum.Total(), Hash: hex.EncodeToString(hash[:])})
	return body, nil
}

// check is the last look at the lease before the write, as careful programs take it. Whatever it
// says, it is in the past when the write is sent.
func (w *workerRun) check() error {
	if err := w.lease.Admit(0); err != nil {
		return err
	}
	w.tell(event{Kind: eventChecked, RemainingMS: w.lease.Remaining().Milliseconds()})
	return nil
}

// write sends the report, and looks at the lease after that.
//
// It does not use the lease's context, which the client cancels when it notices the loss: after the
// pause that would be a race between client and write, and the demo is about the write that wins.
func (w *workerRun) write(ctx context.Context, body []byte, version int64) error {
	if err := w.pause(pauseWrite); err != nil {
		return err
	}
	result, err := w.store.write(ctx, w.lease.Token(), body, version)
	if err != nil {
		return err
	}
	w.tell(event{Kind: eventResult, Fence: w.lease.Token().Fence(), Version: result.version, Result: result.outcome, Text: result.text})
	if result.outcome == resultStaleOwner {
		// Newer ownership exists, so this lease is over and the client is about to find out.
		select {
		case <-w.lease.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if loss := w.lease.Err(); loss != nil {
		w.tell(event{Kind: eventLost, Text: lossOf(loss)})
		w.tell(event{Kind: eventDiagnostic, Result: result.outcome, Fence: w.lease.Token().Fence(), Text: w.Report})
	}
	return nil
}

// lossOf says why the lease was lost, without the operation and the resource, which the story
// names already.
func lossOf(err error) string {
	var lost *pglease.LostError
	if errors.As(err, &lost) {
		return lost.Error()
	}
	return err.Error()
}

// release gives back exactly this lease. One that was lost is not touched, nor is its successor.
func (w *workerRun) release(ctx context.Context) error {
	if err := w.pause(pauseRelease); err != nil {
		return err
	}
	err := w.lease.Release(ctx)
	switch {
	case errors.Is(err, pglease.ErrLost):
		return nil
	case err != nil:
		return err
	}
	w.tell(event{Kind: eventReleased, Lease: w.lease.Token().LeaseID().String()})
	return nil
}

// pause waits for the director, if the worker was told to at this place.
func (w *workerRun) pause(at string) error {
	if !slices.Contains(w.Pauses, at) {
		return nil
	}
	w.tell(event{Kind: eventPaused, At: at})
	if _, err := w.in.ReadString('\n'); err != nil {
		return fmt.Errorf("paused before its %s, and nobody says go on: %w", at, err)
	}
	return nil
}

func (w *workerRun) tell(e event) { _ = w.out.Encode(e) } // without a director the next pause fails
