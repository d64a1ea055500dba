package jobs

import (
	"context"
	"errors"
	"time"
)

// A task is a claim that a worker works on.
type task struct {
	claim  *Claim
	ctx    context.Context //nolint:containedctx // the handler's, which the heartbeat ends
	cancel context.CancelCauseFunc
	timer  *time.Timer   // ends the context when the claim's time is over by this process's clock
	done   chan struct{} // closed when the completer has dealt with it
}

func (w *worker) start(alive context.Context, claim *Claim) {
	t := &task{claim: claim, done: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(alive)
	w.mu.Lock()
	w.running[claim.ID] = t
	t.timer = time.AfterFunc(claim.Remaining(), func() { w.expire(t) })
	w.mu.Unlock()
	w.tasks.Go(func() { w.work(alive, t) })
}

// expire is the timer's call: unless a heartbeat was confirmed meanwhile, the claim is not to be
// trusted any more, with no reply and no error needed.
func (w *worker) expire(t *task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if left := t.claim.Remaining(); left > 0 {
		t.timer.Reset(left)
		return
	}
	t.cancel(ErrUnconfirmed)
}

// work runs the handler and ends the claim. The claim keeps its place until its end is settled, so
// a worker never has more claims than it may.
func (w *worker) work(alive context.Context, t *task) {
	defer w.leave(t)                      // also when the handler ends its goroutine, as a test's Fatal does
	err := w.handler.call(t.ctx, t.claim) //nolint:contextcheck // the handler's own, derived from alive
	if err != nil {
		w.settle(alive, t, err)
		return
	}
	w.ended <- t
	<-t.done
}

// leave frees the claim's place. What was not ended by then ends by the TTL.
func (w *worker) leave(t *task) {
	w.mu.Lock()
	t.timer.Stop()
	delete(w.running, t.claim.ID)
	w.mu.Unlock()
	t.cancel(context.Canceled)
	nudge(w.freed)
	if t.claim.Partition != "" {
		nudge(w.again) // the next one of the partition
	}
}

// settle ends a claim whose handler returned an error.
func (w *worker) settle(alive context.Context, t *task, err error) {
	cause := context.Cause(t.ctx) //nolint:contextcheck // the handler's own, derived from alive
	if errors.Is(cause, ErrStaleClaim) {
		w.config.Logger.Warn("a handler ended after its claim", "job", t.claim.ID, "attempt", t.claim.Attempt, "error", err)
		return
	}
	var snooze *snoozeError
	stopped := errors.Is(cause, ErrStopping) && (errors.Is(err, context.Canceled) || errors.Is(err, ErrStopping))
	w.persist(alive, t, func(ctx context.Context) error {
		switch {
		case stopped:
			return w.client.Return(ctx, t.claim)
		case errors.As(err, &snooze):
			return w.client.Snooze(ctx, t.claim, min(max(snooze.delay, time.Microsecond), MaxDelay))
		}
		_, failed := w.client.Fail(ctx, t.claim, failure(err))
		return failed
	})
}

// persist repeats a step while the database fails and the claim may be alive, but not for ever: a
// database that takes heartbeats and nothing else must not keep the worker. After that the job runs
// again by itself.
func (w *worker) persist(alive context.Context, t *task, step func(context.Context) error) {
	began, patience := time.Now(), max(w.config.TTL, 3*requestTimeout)
	for delay := 10 * time.Millisecond; ; delay = min(2*delay, time.Second) {
		ctx, cancel := context.WithTimeout(alive, requestTimeout)
		err := step(ctx)
		cancel()
		switch {
		case err == nil:
			return
		case errors.Is(err, ErrStaleClaim):
			w.config.Logger.Warn("a claim was over before it was ended", "job", t.claim.ID, "attempt", t.claim.Attempt, "error", err)
			return
		}
		w.config.Logger.Error("the end of a claim cannot be told", "job", t.claim.ID, "attempt", t.claim.Attempt, "error", err)
		if t.claim.Remaining() == 0 || time.Since(began) > patience {
			return
		}
		if pause(alive, jitter(delay, 0.5)) != nil {
			return
		}
	}
}

const completeBatch = 100

// completeAll completes what handlers have done, whatever has come together since the last
// statement in one.
func (w *worker) completeAll(alive context.Context) {
	for {
		select {
		case <-alive.Done():
			return
		case t := <-w.ended:
			w.completeSome(alive, w.gather(t))
		}
	}
}

func (w *worker) gather(first *task) []*task {
	batch := []*task{first}
	for len(batch) < completeBatch {
		select {
		case t := <-w.ended:
			batch = append(batch, t)
		default:
			return batch
		}
	}
	return batch
}

func (w *worker) completeSome(alive context.Context, batch []*task) {
	claims := make([]*Claim, len(batch))
	latest := batch[0]
	for i, t := range batch {
		if claims[i] = t.claim; t.claim.Remaining() > latest.claim.Remaining() {
			latest = t
		}
	}
	w.persist(alive, latest, func(ctx context.Context) error { return w.client.Complete(ctx, claims...) })
	for _, t := range batch {
		close(t.done)
	}
}
