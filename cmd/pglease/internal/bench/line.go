package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pglease/pglease/pglease"
)

// A line is a resource with a holder and so many who wait for it.
type line struct {
	clients []*pglease.Client
	wait    func(*pglease.Client) // begins a wait, for as long as the stage stands
	joined  chan struct{}         // one for each that took a place
	granted chan grant            // one for each that was served
	holder  grant
}

// A grant is the end of one wait.
type grant struct {
	lease  *pglease.Lease
	client *pglease.Client
	at     time.Time
	err    error
}

// prepareLine fills a line whose places are spread over the clients, so that with more than one
// each hand-over goes from one process, as it were, to another.
func prepareLine(ctx context.Context, s *stage) (loads, error) {
	waiters := s.options.Waiters
	l := &line{joined: make(chan struct{}, waiters), granted: make(chan grant, waiters+1)}
	config := pglease.Config{MaxWaiters: waiters + 1, MaxWaiting: waiters + 1, Observer: pglease.ObserverFunc(l.observe)}
	var err error
	if l.clients, err = s.processes(ctx, 4, config); err != nil {
		return loads{}, err
	}
	l.open(ctx, s)
	if err := l.fill(ctx, waiters); err != nil {
		return loads{}, err
	}
	limit, err := s.updates(ctx, 1, 1, true)
	return loads{ours: load{run: l.serve}, limit: limit, limitName: "one UPDATE by one connection"}, err
}

// open lets waits begin. They end with the stage, before their clients.
func (l *line) open(ctx context.Context, s *stage) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	l.wait = func(client *pglease.Client) {
		all.Go(func() {
			lease, err := client.Acquire(ctx, resource(0))
			l.granted <- grant{lease, client, time.Now(), err}
		})
	}
	s.atEnd(func(context.Context) error {
		cancel()
		all.Wait()
		return nil
	})
}

func (l *line) observe(e pglease.Event) {
	if e.Kind == pglease.EventWaiting {
		l.joined <- struct{}{}
	}
}

func (l *line) fill(ctx context.Context, waiters int) error {
	l.wait(l.clients[0])
	if l.holder = <-l.granted; l.holder.err != nil {
		return l.holder.err
	}
	for i := range waiters {
		l.wait(l.clients[(i+1)%len(l.clients)])
	}
	for range waiters {
		if err := l.awaitJoined(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *line) awaitJoined(ctx context.Context) error {
	select {
	case <-l.joined:
		return nil
	case g := <-l.granted:
		return fmt.Errorf("a waiter was not left waiting: %w", g.err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// serve hands over, one after another, for about d. Whoever has released goes to the end of the
// line before the next hand-over; that time does not count.
func (l *line) serve(ctx context.Context, d time.Duration) (s sample, err error) {
	for end := time.Now().Add(d); s.ops == 0 || time.Now().Before(end); {
		took, err := l.handOver(ctx)
		if err != nil {
			return s, err
		}
		s.ops, s.timed = s.ops+1, s.timed+1
		s.elapsed += took
		s.latencies = append(s.latencies, took)
	}
	return s, nil
}

func (l *line) handOver(ctx context.Context) (time.Duration, error) {
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
