// Package waitline keeps a line of waiters for one resource, for programs that measure hand-overs.
package waitline

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pglease/pglease/pglease"
)

// A Line is a resource with a holder and so many who wait for it. One goroutine may use it.
type Line struct {
	resource string
	waiters  int
	joined   chan struct{} // one for each that took a place
	granted  chan grant    // one for each that was served
	holder   grant

	waits  context.Context //nolint:containedctx // of the waits, which outlive the calls that begin them
	cancel context.CancelFunc
	all    sync.WaitGroup
}

// A grant is the end of one wait.
type grant struct {
	lease  *pglease.Lease
	client *pglease.Client
	at     time.Time
	err    error
}

// New returns a line that nobody stands in yet. Observe is for the clients that will: they need
// MaxWaiters and MaxWaiting above the number of waiters. End it before them.
func New(ctx context.Context, resource string, waiters int) *Line {
	l := &Line{resource: resource, waiters: waiters, joined: make(chan struct{}, waiters), granted: make(chan grant, waiters+1)}
	l.waits, l.cancel = context.WithCancel(ctx)
	return l
}

// Observe implements pglease.Observer.
func (l *Line) Observe(e pglease.Event) {
	if e.Kind == pglease.EventWaiting {
		l.joined <- struct{}{}
	}
}

// Fill acquires the resource and lets the waiters come, one after another. Their places are dealt out to the
// clients in turn, so that with more than one a hand-over goes from one client to another.
func (l *Line) Fill(ctx context.Context, clients []*pglease.Client) error {
	l.wait(clients[0])
	if l.holder = <-l.granted; l.holder.err != nil {
		return l.holder.err
	}
	for i := range l.waiters {
		l.wait(clients[(i+1)%len(clients)])
		if err := l.awaitJoined(ctx); err != nil {
			return err
		}
	}
	return nil
}

// HandOver releases the resource and tells how long it took until the next in line had its lease.
// Whoever has released is at the end of the line when it returns.
func (l *Line) HandOver(ctx context.Context) (time.Duration, error) {
	before, began := l.holder, time.Now()
	if err := before.lease.Release(ctx); err != nil {
		return 0, err
	}
	select {
	case l.holder = <-l.granted:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if l.holder.err != nil {
		return 0, l.holder.err
	}
	l.wait(before.client)
	return l.holder.at.Sub(began), l.awaitJoined(ctx)
}

// End ends the waits and releases what was granted last.
func (l *Line) End(ctx context.Context) {
	l.cancel()
	l.all.Wait()
	close(l.granted)
	for g := range l.granted {
		if g.err == nil {
			_ = g.lease.Release(ctx) // else it goes with the server
		}
	}
	if l.holder.lease != nil {
		_ = l.holder.lease.Release(ctx) // it may be the one before, and over
	}
}

// wait begins a wait, for as long as the line stands.
func (l *Line) wait(client *pglease.Client) {
	l.all.Go(func() {
		lease, err := client.Acquire(l.waits, l.resource)
		l.granted <- grant{lease, client, time.Now(), err}
	})
}

func (l *Line) awaitJoined(ctx context.Context) error {
	select {
	case <-l.joined:
		return nil
	case g := <-l.granted:
		return errors.Join(errors.New("a waiter was not left waiting"), g.err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
