package pglease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglease/pglease/pglease/internal/authority"
)

// wait acquires, in line where the resource is held.
func (c *Client) wait(ctx context.Context, r *request) (*Lease, error) {
	if r.maxWait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.maxWait)
		defer cancel()
	}
	r.waits = true
	for first := true; ; first = false {
		var lease *Lease
		err := ErrHeld
		r.Ticket = 0
		if !first || !c.line.active() { // where others of this client wait, a join asks as well
			lease, err = c.request(ctx, r)
		}
		if errors.Is(err, ErrHeld) && !inGrace(err) {
			lease, err = c.waitInLine(ctx, r, err)
		}
		switch {
		case err == nil:
			return lease, nil
		case ctx.Err() != nil:
			return nil, c.settled(ctx, r, withCause(ctx, err))
		case errors.Is(err, errNoRow):
		case errors.Is(err, ErrRequestSpent) && !r.named: // granted, and over before it was heard of
			r.anew()
		case !mayPass(err) || c.isClosing():
			return nil, c.settled(ctx, r, err)
		default: // the wait is bounded by its context, not by what goes wrong meanwhile
			c.config.Logger.Warn("acquire is tried again", "resource", r.Resource, "err", err)
			if !pause(ctx, c.config.PollEvery) {
				return nil, c.settled(ctx, r, withCause(ctx, err))
			}
		}
	}
}

// settled returns the error of a wait, after it has settled what an earlier try may have left behind.
func (c *Client) settled(ctx context.Context, r *request, err error) error {
	if !r.open || errors.Is(err, ErrUnknownOutcome) {
		return err
	}
	return c.resolve(ctx, r, err)
}

// withCause adds why the context ended to an error that came of it and does not say so.
func withCause(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// mayPass tells an error of the database that may pass from an answer.
func mayPass(err error) bool {
	if inGrace(err) {
		return true
	}
	for _, answer := range []error{ErrHeld, ErrQueueFull, ErrRequestSpent, ErrUnknownOutcome, ErrStaleServer, ErrClosed} {
		if errors.Is(err, answer) {
			return false
		}
	}
	return authority.KindOf(err) != authority.Definitive
}

// inGrace: the resource is free, and not yet to be had. There is no holder to be in line behind.
func inGrace(err error) bool {
	var held *HeldError
	return errors.As(err, &held) && held.Grace
}

// errNoRow: the resource's row is being made, or was pruned; only an acquire makes it.
var errNoRow = errors.New("the resource has no row yet")

// waitInLine joins and waits to be served. held is what was seen of the holder.
func (c *Client) waitInLine(ctx context.Context, r *request, held error) (*Lease, error) {
	r.sent, r.waited = true, true
	p, err := c.line.enter(ctx, r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", held, err)
		}
		return nil, err
	}
	defer c.line.exit(p) // after the lease is the client's own, or serve would release it
	lease, err := c.join(ctx, r, p)
	for lease == nil && err == nil {
		select {
		case g := <-p.woken:
			lease, err = c.woken(ctx, r, p, g)
		case <-c.closing:
			err = ErrClosed
		case <-ctx.Done():
			err = fmt.Errorf("%w: %w", held, context.Cause(ctx))
		}
	}
	if err == nil {
		return lease, nil
	}
	if p.Ticket != 0 && r.ID == p.Request { // else it has no place, or was ended together with it
		lease, left := c.leave(ctx, r, p)
		if lease != nil {
			return lease, nil
		}
		if left != nil && r.named {
			err = fmt.Errorf("%w: %w", ErrUnknownOutcome, left)
		}
	}
	if ctx.Err() != nil && !errors.Is(err, ErrHeld) && !errors.Is(err, ErrUnknownOutcome) {
		err = fmt.Errorf("%w: %w", held, err)
	}
	return nil, err
}

// join takes a place, or the resource if it has become free. A nil lease and a nil error mean that
// the place is taken.
func (c *Client) join(ctx context.Context, r *request, p *place) (*Lease, error) {
	j := authority.JoinRequest{Request: r.Request, Client: c.line.id, Lease: p.lease, MaxWaiting: c.config.MaxWaiters}
	var err error
	for try := range attempts {
		if try > 0 && !pause(ctx, c.config.RequestTimeout/100<<try) {
			break
		}
		j.Fresh = try == 0 && !r.named && !r.open && p.Ticket == 0
		if deadline, ok := ctx.Deadline(); ok {
			j.Patience = max(time.Until(deadline), time.Microsecond)
		}
		sent := time.Now()
		var answer authority.Answer
		if answer, err = c.tryJoin(ctx, j); err == nil {
			if answer.Outcome == authority.Full && try == 0 && c.prune(ctx, r.Resource) {
				continue
			}
			return c.joined(ctx, r, p, sent, answer)
		}
		kind := authority.KindOf(err)
		r.open = r.open || kind == authority.Unknown
		if kind == authority.Definitive || ctx.Err() != nil {
			break
		}
	}
	err = withCause(ctx, err)
	if !r.open {
		return nil, err
	}
	return nil, c.resolve(ctx, r, err)
}

// prune drops the dead of a line that is full, and tells whether there is room now.
func (c *Client) prune(ctx context.Context, resource string) bool {
	ctx, cancel := context.WithTimeout(ctx, c.config.RequestTimeout)
	defer cancel()
	dropped, err := c.auth.Prune(ctx, resource)
	return err == nil && dropped > 0
}

func (c *Client) tryJoin(ctx context.Context, j authority.JoinRequest) (authority.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.RequestTimeout)
	defer cancel()
	return c.auth.Join(ctx, j)
}

// joined takes the answer to a join.
func (c *Client) joined(ctx context.Context, r *request, p *place, sent time.Time, answer authority.Answer) (*Lease, error) {
	switch answer.Outcome {
	case authority.Joined:
		c.events.emit(Event{Kind: EventWaiting, Resource: r.Resource, Owner: r.Owner, Duration: time.Since(r.began), Ahead: answer.Ahead})
		c.line.placed(p, answer.Ticket, sent, c.line.next(authority.Standing{Remaining: answer.Remaining, First: answer.Ahead == 0}, false))
		if answer.Remaining <= 0 {
			c.promote(ctx, r.Resource)
		}
		return nil, nil //nolint:nilnil // said above
	case authority.Full:
		return nil, fmt.Errorf("%w: %d wait for it", ErrQueueFull, answer.Ahead)
	case authority.Held:
		if !answer.Grace {
			return nil, errNoRow
		}
	}
	return c.answered(ctx, r, sent, answer)
}

// woken takes a grant, or looks after a ring. A nil lease and a nil error mean: wait on.
func (c *Client) woken(ctx context.Context, r *request, p *place, g grant) (*Lease, error) {
	if !g.ring {
		return c.served(ctx, r, p, g)
	}
	limited, cancel := context.WithTimeout(ctx, c.config.RequestTimeout)
	defer cancel()
	sent := time.Now()
	standings, err := c.auth.Watch(limited, []authority.Place{p.Place})
	if err != nil {
		return nil, nil //nolint:nilnil,nilerr // the line looks again by itself
	}
	if len(standings) == 0 {
		return nil, errNoRow
	}
	s := standings[0]
	switch {
	case s.Granted:
		return c.served(ctx, r, p, grant{token: s.Token, sent: sent, remaining: s.Remaining, unconfirmed: s.Unconfirmed})
	case !s.InLine:
		return c.join(ctx, r, p) // the entry disappeared: enter again, at the end
	case r.Barging && s.Remaining <= 0:
		return c.barge(ctx, r, p)
	}
	return nil, nil //nolint:nilnil // nothing new
}

// served makes the lease that was handed to this request. Where other calls have the same request, one of them may
// have had the lease and released it since this was told: a renewal tells.
func (c *Client) served(ctx context.Context, r *request, p *place, g grant) (*Lease, error) {
	r.served, r.proven = true, g.proven
	g.unconfirmed = g.unconfirmed || c.line.shares(p)
	return c.answered(ctx, r, g.sent, authority.Answer{
		Outcome: authority.Repeated, Token: g.token, Remaining: g.remaining, Unconfirmed: g.unconfirmed,
	})
}

// barge tries to take a resource that is free, from a place in line.
func (c *Client) barge(ctx context.Context, r *request, p *place) (*Lease, error) {
	r.Ticket = p.Ticket
	lease, err := c.request(ctx, r)
	switch {
	case lease == nil && r.ID != p.Request:
		return nil, errNoRow // a reply was lost, and the request ended with its place: begin anew
	case errors.Is(err, ErrHeld):
		return nil, nil //nolint:nilnil // another was first: wait on
	}
	return lease, err
}

// leave gives the place up, on a context of its own. What was granted meanwhile is released, unless the
// request has a name: it may be made again, and a release of this grant that came late would end what
// was given to it then. So that grant is taken.
func (c *Client) leave(ctx context.Context, r *request, p *place) (*Lease, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.RequestTimeout)
	defer cancel()
	at := p.Place
	if !r.named {
		at.Ticket = 0 // no try of this request is to join later, however late it arrives
	}
	var lease *Lease
	err := insist(ctx, func() error {
		if !r.named {
			return c.giveUpPlace(ctx, at)
		}
		sent := time.Now()
		s, err := c.auth.Leave(ctx, at)
		if err != nil || !s.Granted {
			return err
		}
		lease, err = c.answered(ctx, r, sent, authority.Answer{Outcome: authority.Repeated, Token: s.Token, Remaining: s.Remaining})
		return err
	})
	if err != nil {
		c.config.Logger.Warn("the line was not left yet; a lease that is granted now may end with its TTL", "resource", r.Resource, "err", err)
		if !r.named { // else it is the caller's, who may ask again
			left := c.abandoned(r)
			r.anew()                   // before it is ended: a next try under its id would lose what it is granted
			c.line.leftovers.add(left) //nolint:contextcheck // what it starts outlives this call
		}
	}
	return lease, err
}

// giveUpPlace leaves the line, and releases what was granted meanwhile.
func (c *Client) giveUpPlace(ctx context.Context, at authority.Place) error {
	s, err := c.auth.Leave(ctx, at)
	if err != nil || !s.Granted {
		return err
	}
	sent := time.Now()
	_, next, err := c.auth.Release(ctx, authority.ReleaseRequest{Lease: s.Token, Client: c.line.id})
	c.line.serve(ctx, sent, next)
	return err
}
