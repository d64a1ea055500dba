package jobs

import (
	"context"
	"errors"
	"time"
)

// A task is a claim that a worker works on.
type task struct {
	claim  *Claim
	began  time.Time
	ctx    context.Context //nolint:containedctx // the handler's, which the heartbeat ends
	cancel context.CancelCauseFunc
	timer  *time.Timer   // ends the context when the claim's time is over by this process's clock
	done   chan struct{} // closed when the completer has dealt with it
}

func (w *worker) start(alive context.Context, claim *Claim) {
	t := &task{claim: claim, began: time.Now(), done: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(alive)
	w.mu.Lock()
	w.running[claim.key()] = t
	t.timer = time.AfterFunc(claim.Remaining(), func() { w.expire(t) })
	w.mu.Unlock()
	w.client.events.emit(claim.event(EventClaimed))
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
	w.lose(t, ErrUnconfirmed)
}

// lose ends the handler's context because of what became of its claim.
func (w *worker) lose(t *task, cause error) {
	if t.ctx.Err() == nil {
		event := t.claim.event(EventLost)
		event.Err = cause
		w.client.events.emit(event)
	}
	t.cancel(cause)
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
	delete(w.running, t.claim.key())
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
		w.tell(t, EventStale, "", cause)
		return
	}
	var snooze *snoozeError
	switch {
	case errors.Is(cause, ErrStopping) && (errors.Is(err, context.Canceled) || errors.Is(err, ErrStopping)):
		ended := w.persist(alive, t, func(ctx context.Context) error { return w.client.Return(ctx, t.claim) })
		w.tellEnd(t, EventReturned, Ready, nil, ended)
	case errors.As(err, &snooze):
		delay := min(max(snooze.delay, time.Microsecond), MaxDelay)
		ended := w.persist(alive, t, func(ctx context.Context) error { return w.client.Snooze(ctx, t.claim, delay) })
		w.tellEnd(t, EventSnoozed, Ready, nil, ended)
	default:
		var state State
		ended := w.persist(alive, t, func(ctx context.Context) (failed error) {
			state, failed = w.client.Fail(ctx, t.claim, failure(err))
			return failed
		})
		w.tellEnd(t, EventFailed, state, err, ended)
	}
}

// tellEnd tells the observer how a claim ended; ended is the error of ending it.
func (w *worker) tellEnd(t *task, kind EventKind, state State, err, ended error) {
	switch {
	case ended == nil:
		w.tell(t, kind, state, err)
	case errors.Is(ended, ErrStaleClaim):
		w.tell(t, EventStale, "", ended)
	default:
		w.tell(t, EventUnknown, "", ended)
	}
}

func (w *worker) tell(t *task, kind EventKind, state State, err error) {
	event := t.claim.event(kind)
	event.State, event.Err, event.Duration = state, err, time.Since(t.began)
	w.client.events.emit(event)
}

// persist repeats a step while the database fails and the claim may be alive, but not for ever: a
// database that takes heartbeats and nothing else must not keep the worker. After that the job runs
// again by itself. It returns nil, an error that matches ErrStaleClaim, or why nothing is known.
func (w *worker) persist(alive context.Context, t *task, step func(context.Context) error) error {
	began, patience := time.Now(), max(w.config.TTL, 3*requestTimeout)
	for delay := 10 * time.Millisecond; ; delay = min(2*delay, time.Second) {
		ctx, cancel := context.WithTimeout(alive, requestTimeout)
		err := step(ctx)
		cancel()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrStaleClaim):
			w.config.Logger.Warn("a claim was over before it was ended", "job", t.claim.ID, "attempt", t.claim.Attempt, "error", err)
			return err
		}
		w.config.Logger.Error("the end of a claim cannot be told", "job", t.claim.ID, "attempt", t.claim.Attempt, "error", err)
		if t.claim.Remaining() == 0 || time.Since(began) > patience {
			return err
		}
		if pause(alive, jitter(delay, 0.5)) != nil {
			return err
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
	ended := w.persist(alive, latest, func(ctx context.Context) error { return w.client.Complete(ctx, claims...) })
	stale := map[claimKey]error{}
	for _, over := range StaleClaims(ended) {
		stale[claimKey{over.ID, over.Fence}] = over
	}
	for _, t := range batch {
		why := ended
		if len(stale) > 0 { // the others of the batch are done
			why = stale[t.claim.key()]
		}
		w.tellEnd(t, EventCompleted, Done, nil, why)
		close(t.done)
	}
}
