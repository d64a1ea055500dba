package pglease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
)

// errBusy: an earlier try of the same call may be what the resource is busy with.
var errBusy = errors.New("busy with an earlier try of this request")

// attempts bounds how often one call sends its request when the database fails.
const attempts = 4

// TryAcquire makes one attempt and does not wait for a holder. The context bounds the call, never
// the life of the lease.
//
// The error matches ErrHeld when another owner has the resource, and is then a *HeldError. After
// any error the caller has nothing, and no lease of this call is left behind; only with
// WithRequestID may it match ErrUnknownOutcome instead.
func (c *Client) TryAcquire(ctx context.Context, resource string, options ...AcquireOption) (*Lease, error) {
	return c.enter(ctx, resource, options, nil, func(r *request) (*Lease, error) {
		return c.request(ctx, r)
	})
}

// Acquire waits in line until the resource is granted or the context ends. Those who wait are
// served in the order in which they came; a release hands the resource over in its own commit, and
// a waiter that has died or given up is passed over. The error matches both ErrHeld and the
// context's error when the wait was cut short, ErrQueueFull when too many wait already; otherwise it
// is as TryAcquire's. A wait with WithRequestID that is cut short in the moment in which it is served
// returns its lease, though the context has ended.
func (c *Client) Acquire(ctx context.Context, resource string, options ...AcquireOption) (*Lease, error) {
	return c.acquire(ctx, resource, options, nil)
}

func (c *Client) acquire(ctx context.Context, resource string, options []AcquireOption, counter *int) (*Lease, error) {
	return c.enter(ctx, resource, options, counter, func(r *request) (*Lease, error) {
		return c.wait(ctx, r)
	})
}

// enter checks, counts and reports one call. Where it succeeds it also counts the caller's work
// into counter, in one step, so that Close never finds neither.
func (c *Client) enter(ctx context.Context, resource string, options []AcquireOption, counter *int, call func(*request) (*Lease, error)) (*Lease, error) {
	r, err := c.newRequest(resource, options)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = c.begin()
	}
	if err != nil {
		return nil, &Error{Op: "acquire", Resource: resource, Err: err}
	}
	lease, err := call(&r)
	c.mu.Lock()
	c.acquires--
	if err == nil && counter != nil {
		*counter++
	}
	c.signalIdle()
	c.mu.Unlock()
	c.report(r, lease, err)
	if err != nil {
		return nil, &Error{Op: "acquire", Resource: resource, Err: err}
	}
	return lease, nil
}

func (c *Client) report(r request, lease *Lease, err error) {
	e := Event{Resource: r.Resource, Owner: r.Owner, Duration: time.Since(r.began), Err: err}
	switch {
	case err == nil:
		e.Kind, e.Fence = EventAcquired, lease.Token().Fence()
	case errors.Is(err, ErrHeld):
		e.Kind = EventHeld
	default:
		e.Kind = EventAcquireError
	}
	c.events.emit(e)
}

// request sends the request until it is answered, at most attempts times. The same request is
// never granted twice, so sending it again is safe whatever became of the last time.
func (c *Client) request(ctx context.Context, r *request) (*Lease, error) {
	var err error
	for try := range attempts {
		if try > 0 && !pause(ctx, c.config.RequestTimeout/100<<try) {
			break
		}
		sent := time.Now()
		var answer authority.Answer
		r.Fresh = !r.named && !r.sent
		r.sent = true
		answer, err = c.attempt(ctx, r)
		if err == nil {
			if answer.Outcome == authority.Queued && !c.promote(ctx, r.Resource) && try < attempts-1 {
				continue // nobody live waited: it is free now
			}
			if answer.Outcome == authority.Spent && !r.named {
				r.anew() // granted, and over before we heard of it
				continue
			}
			if !r.open || answer.Outcome != authority.Held || r.named && r.waits { // the join that follows settles it
				return c.answered(ctx, r, sent, answer)
			}
			// Perhaps by an earlier try of ours that is still under way: end that, and ask anew.
			if err = c.resolve(ctx, r, errBusy); err != errBusy { //nolint:errorlint // it is as it was, and nothing joined it
				return nil, err
			}
			continue
		}
		kind := authority.KindOf(err)
		r.open = r.open || kind == authority.Unknown
		if kind == authority.Definitive || ctx.Err() != nil {
			break
		}
	}
	if err == nil {
		err = ErrRequestSpent // each new request was over before it was heard of
	}
	err = withCause(ctx, err)
	if !r.open {
		return nil, err
	}
	return nil, c.resolve(ctx, r, err)
}

func (c *Client) attempt(ctx context.Context, r *request) (authority.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.RequestTimeout)
	defer cancel()
	return c.auth.Acquire(ctx, r.Request)
}

// resolve ends a request whose outcome is unknown, and gives r another id for a next try.
func (c *Client) resolve(ctx context.Context, r *request, err error) error {
	if r.named {
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, openError{err})
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.RequestTimeout)
	defer cancel()
	left := c.abandoned(r)
	r.anew() // before anything can fail: this one is not to be used again
	if failed := insist(ctx, func() error { return left.end(ctx) }); failed != nil {
		c.config.Logger.Warn("acquire not resolved yet; a lease of it may end with its TTL",
			"resource", r.Resource, "ttl", r.TTL, "err", failed)
		c.line.leftovers.add(left) //nolint:contextcheck // what it starts outlives this call
		return fmt.Errorf("%w; and then: %w", err, failed)
	}
	return err
}

// abandoned is what ends a request, whatever came of it: its lease, its place, and what arrives later. Its id must not
// be used again.
func (c *Client) abandoned(r *request) leftover {
	resource, id := r.Resource, r.ID
	left := leftover{resource: resource, end: func(ctx context.Context) error {
		sent := time.Now()
		next, err := c.auth.Abandon(ctx, resource, id)
		c.line.serve(ctx, sent, next)
		return err
	}}
	if !r.waited { // a place has no end of its own
		left.until = time.Now().Add(r.TTL)
	}
	return left
}

// insist repeats a clean-up that must not fail for a connection that has died: several of a pool
// may have.
func insist(ctx context.Context, step func() error) error {
	err := step()
	for try := 0; err != nil && ctx.Err() == nil && authority.KindOf(err) != authority.Definitive; try++ {
		if !pause(ctx, time.Millisecond<<min(try, 8)) {
			break
		}
		err = step()
	}
	return err
}

// answered turns the authority's answer into a lease or an error.
func (c *Client) answered(ctx context.Context, r *request, sent time.Time, answer authority.Answer) (*Lease, error) {
	c.heard(sent, answer.DatabaseTime)
	switch answer.Outcome {
	case authority.Granted, authority.Repeated:
		r.open = false
	case authority.Held:
		return nil, &HeldError{Owner: answer.Owner, Remaining: max(answer.Remaining, 0), Grace: answer.Grace}
	case authority.Queued:
		return nil, &HeldError{}
	case authority.Spent:
		r.open = false
		return nil, ErrRequestSpent
	default:
		return nil, fmt.Errorf("the database answered %q", answer.Outcome)
	}
	c.line.ghosts.forget(r.Resource)
	if err := c.checkServer(answer.Token); err != nil {
		return nil, c.resolve(ctx, r, err)
	}
	again := answer.Outcome == authority.Repeated && !r.served // a sign of life: others may take the first owner for dead
	least := r.timing.trust(r.TTL) * 7 / 8
	unproven := r.served && !r.proven
	if unproven { // what is left of the share, by the database's clock: however late it was told, it was granted before
		answer.Remaining -= r.TTL - unprovenShare(r.TTL)
		least = r.timing.unitOfWork + r.timing.trust(r.TTL)/16 // so that it is not Suspect before its first renewal
	}
	trusted := sent.Add(r.timing.trust(answer.Remaining))
	if left := time.Until(trusted); answer.Unconfirmed || again || left < least {
		var err error
		sent, answer.Remaining, err = c.topUp(ctx, sent, answer, left)
		switch {
		case errors.Is(err, ErrExpired):
			return nil, ErrRequestSpent
		case err != nil && (answer.Unconfirmed || time.Now().After(trusted)):
			return nil, c.resolve(ctx, r, err)
		case err == nil:
			unproven = false
		}
	}
	lease := newLease(c, answer.Token, r.timing, sent, answer.Remaining)
	lease.awaited = r.waited // who waited is not the only one, as a rule
	lease.unproven = unproven
	known := c.adopt(lease)
	if known == lease {
		lease.start()
		c.keeper.add(lease)
		return lease, nil
	}
	lease.timer.Stop()
	switch {
	case known == nil:
		return nil, c.resolve(ctx, r, ErrClosed)
	case known.State() == Releasing:
		return nil, fmt.Errorf("%w: its lease is being released", ErrRequestSpent)
	}
	return known, nil
}

// topUp renews a grant at once: one of whose trust much is gone, because the request or the reply
// was slow, the row was locked for a while, or the grant was made long before; and one that
// a synchronous standby may not have, because the commit of a renewal waits for that too.
//
// A renewal skips a row that somebody has locked, as who joins the line does for the time of a commit.
// That is no end of the lease: it is tried again where the grant is of no use without a renewal, and else
// left to the keeper.
func (c *Client) topUp(ctx context.Context, sent time.Time, answer authority.Answer, left time.Duration) (time.Time, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.RequestTimeout)
	defer cancel()
	lease, until := []fence.Token{answer.Token}, time.Now().Add(left)
	for try := 0; ; try++ {
		again := time.Now()
		renewals, err := c.auth.Renew(ctx, lease, c.saw(0))
		if err == nil && len(renewals) > 0 {
			return again, renewals[0].Remaining, nil
		}
		var ends []authority.End
		if err == nil {
			ends, err = c.auth.Ends(ctx, lease)
		}
		switch {
		case err != nil:
			return sent, answer.Remaining, err
		case len(ends) == 0 || !ends[0].Current:
			return sent, answer.Remaining, ErrExpired
		case !answer.Unconfirmed && time.Now().Before(until), !pause(ctx, time.Millisecond<<min(try, 8)):
			return sent, answer.Remaining, errRowLocked
		}
	}
}

// pause waits for about d, or less if the context ends; it tells whether the context lives.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
