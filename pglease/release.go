package pglease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglease/pglease/pglease/internal/authority"
)

// Release gives the lease back, by its exact identity. From its beginning nothing new is admitted
// and no renewal is sent; a renewal under way is waited for.
//
// A release makes the next grant come sooner; the TTL is what frees a resource in the end. So one that finds
// nobody in line does not wait for the disk, unless the lease had more than a minute left: where the server
// crashes in the same second the lease may be there again, and ends with its TTL.
//
// The error is nil when the lease was released, now or by an earlier call whose reply was lost. It
// matches ErrLost when the lease was over before: nothing was changed, and a newer lease of the resource,
// also one of this process, is untouched. Any other error leaves the outcome open: the lease may
// be released, or may live until its TTL ends, unrenewed; calling again settles it.
func (l *Lease) Release(ctx context.Context) error { return l.release(ctx, "") }

// HandOver releases the lease to the first waiter of the given owner name, past those that came
// before it. Where no such waiter lives, the error matches ErrNoSuccessor and the lease is kept.
// Otherwise it is as Release.
func (l *Lease) HandOver(ctx context.Context, successor string) error {
	if err := errors.Join(checkOwner(successor), refuse(successor == "", "the successor has no name")); err != nil {
		return &Error{Op: "hand over", Resource: l.Resource(), Err: fmt.Errorf("%w: %w", ErrInvalidConfig, err)}
	}
	return l.release(ctx, successor)
}

func (l *Lease) release(ctx context.Context, successor string) error {
	over, err := l.beginRelease()
	if over {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.client.config.RequestTimeout)
	defer cancel()
	if err = l.grounded(ctx); err == nil {
		sent := time.Now()
		var end authority.End
		var next authority.Handover
		end, next, err = l.client.auth.Release(ctx, authority.ReleaseRequest{
			Lease: l.token, Successor: successor, Unawaited: !l.isAwaited(), Client: l.client.line.id,
		})
		if err == nil {
			err = l.released(end)
			l.client.line.serve(ctx, sent, next)
			return err
		}
	}
	err = &Error{Op: "release", Resource: l.Resource(), Err: err}
	l.client.events.emit(Event{
		Kind: EventReleaseError, Resource: l.Resource(), Owner: l.client.config.Owner, Fence: l.token.Fence(), Err: err,
	})
	return err
}

func (l *Lease) isAwaited() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.awaited
}

// beginRelease enters Releasing, or tells that the lease is over and what Release is to return.
func (l *Lease) beginRelease() (over bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle(time.Now())
	switch l.state {
	case Released:
		return true, nil
	case Lost:
		return true, l.err
	case Releasing:
		l.releases++
		return false, nil
	}
	l.releases++
	l.enter(Releasing, nil)
	l.client.keeper.remove(l)
	return false, nil
}

// released takes the database's answer.
func (l *Lease) released(end authority.End) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.state == Released: // by another call of Release
		return nil
	case end.Ended == authority.EndAlone:
		l.keep()
		return &Error{Op: "hand over", Resource: l.Resource(), Err: ErrNoSuccessor}
	case end.Ended != authority.EndReleased:
		l.lose(lossOf(end))
		return l.err
	}
	if l.state != Lost { // the local clock may have run out before the answer came
		l.end(Released, &Error{Op: "hold", Resource: l.Resource(), Err: ErrReleased})
	}
	l.client.events.emit(Event{
		Kind: EventReleased, Resource: l.Resource(), Owner: l.client.config.Owner, Fence: l.token.Fence(),
		State: l.state, Duration: time.Since(l.since),
	})
	return nil
}

// keep takes the beginning of a hand-over back that found nobody. l.mu is held. Where another call
// of Release was made, its statement may be on its way: then nothing is taken back.
func (l *Lease) keep() {
	if l.state == Releasing && l.releases == 1 {
		l.releases = 0
		l.enter(Held, nil)
		l.settle(time.Now())
		l.client.keeper.count(l)
		l.client.keeper.schedule(l, 0, 0)
	}
}

// Do acquires the resource, calls work, and releases it after work has returned. The context that
// work gets is cancelled, with the loss as its cause, when the lease is over before that; Do still
// waits for work to return, so that nothing of it runs when the next owner is let in.
//
// The error is work's, joined with the loss where there was one: work that returned nil may then
// have been too late, and only the protected resource knows. When the resource could not be
// acquired, work was not called and the error is that of Acquire. A release that cannot be
// confirmed is reported to the Observer, not here: the lease then ends with its TTL. If work
// panics the lease is released and the panic goes on.
func (c *Client) Do(ctx context.Context, resource string, work func(context.Context, *Lease) error, options ...AcquireOption) (err error) {
	lease, err := c.acquire(ctx, resource, options, &c.guarded)
	if err != nil {
		return err
	}
	defer c.ended(&c.guarded)
	defer func() {
		if loss := c.releaseAfter(ctx, lease); loss != nil && !errors.Is(err, loss) {
			err = errors.Join(err, loss)
		}
	}()
	guarded, cancel := lease.Context(ctx)
	defer cancel()
	return work(guarded, lease)
}

// releaseAfter releases on a context of its own, because the work's may have ended. It returns
// the loss, if the lease was lost.
func (c *Client) releaseAfter(ctx context.Context, lease *Lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.RequestTimeout)
	defer cancel()
	err := lease.Release(ctx)
	if errors.Is(err, ErrLost) {
		return err
	}
	if err != nil {
		c.config.Logger.Warn("release not confirmed", "resource", lease.Resource(), "fence", lease.Token().Fence(), "err", err)
	}
	return nil
}
