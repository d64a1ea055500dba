package growth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pglease/pglease/cmd/peerbench/internal/contest"
	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
	"github.com/pglease/pglease/pglease"
)

// waiters has longer and longer lines for one resource, spread over processes.
func (s *stage) waiters(ctx context.Context, c *Curve) error {
	c.Title, c.X = "Hand-over against the length of the line", "waiters"
	c.Unit, c.Limit, c.latency = "hand-over", "one UPDATE", true
	limit, end, err := contest.Limit(ctx, s.server.Address, 1, 1)
	if err != nil {
		return err
	}
	defer end()
	for _, n := range halfSteps(tenfold(1, s.Waiters)) {
		l, err := s.line(ctx, n)
		if err != nil {
			return err
		}
		err = s.measure(ctx, c, n, measure.Load{Name: "hand-over", Run: l.serve}, limit)
		l.close(ctx)
		if err != nil {
			return err
		}
	}
	return nil
}

// A line is a resource with a holder and so many who wait for it.
type line struct {
	resource string
	clients  []*pglease.Client
	wait     func(*pglease.Client) // begins a wait, for as long as the line stands
	joined   chan struct{}         // one for each that took a place
	granted  chan grant            // one for each that was served
	holder   grant

	cancel context.CancelFunc // ends the waits
	all    sync.WaitGroup
	ends   []func()
}

// A grant is the end of one wait.
type grant struct {
	lease  *pglease.Lease
	client *pglease.Client
	at     time.Time
	err    error
}

func (s *stage) line(ctx context.Context, n int) (_ *line, err error) {
	l := &line{resource: fmt.Sprintf("line/%d", n), joined: make(chan struct{}, n), granted: make(chan grant, n+1)}
	waits, cancel := context.WithCancel(ctx)
	l.cancel = cancel
	l.wait = func(client *pglease.Client) {
		l.all.Go(func() {
			lease, err := client.Acquire(waits, l.resource)
			l.granted <- grant{lease, client, time.Now(), err}
		})
	}
	defer func() {
		if err != nil {
			l.close(ctx)
		}
	}()
	config := pglease.Config{
		Schema: peers.HistorySchema, MaxWaiters: n + 1, MaxWaiting: n + 1, TTL: time.Hour,
		Observer: pglease.ObserverFunc(l.observe),
	}
	for range min(processes, n+1) {
		pool, err := peers.Pool(ctx, s.server.Address, 4, &measure.Counter{})
		if err != nil {
			return nil, err
		}
		l.ends = append(l.ends, pool.Close)
		client, err := pglease.New(ctx, pool, config)
		if err != nil {
			return nil, err
		}
		l.ends = append(l.ends, func() { _ = client.Close(context.WithoutCancel(ctx)) })
		l.clients = append(l.clients, client)
	}
	err = l.fill(ctx, n)
	return l, err
}

// giveBack releases what was granted last.
func (l *line) giveBack(ctx context.Context) {
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

func (l *line) close(ctx context.Context) {
	l.cancel()
	l.all.Wait()
	l.giveBack(context.WithoutCancel(ctx))
	for i := len(l.ends) - 1; i >= 0; i-- {
		l.ends[i]()
	}
}

func (l *line) observe(e pglease.Event) {
	if e.Kind == pglease.EventWaiting {
		l.joined <- struct{}{}
	}
}

func (l *line) fill(ctx context.Context, n int) error {
	l.wait(l.clients[0])
	if l.holder = <-l.granted; l.holder.err != nil {
		return l.holder.err
	}
	for i := range n {
		l.wait(l.clients[(i+1)%len(l.clients)])
	}
	for range n {
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
		return errors.Join(errors.New("a waiter was not left waiting"), g.err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// serve hands over, one after another, for about d. Whoever has released goes to the end of the
// line before the next hand-over; that time does not count.
func (l *line) serve(ctx context.Context, d time.Duration) (s measure.Sample, err error) {
	for end := time.Now().Add(d); s.Ops == 0 || time.Now().Before(end); {
		took, err := l.handOver(ctx)
		if err != nil {
			return s, err
		}
		s.Ops, s.Timed, s.Elapsed = s.Ops+1, s.Timed+1, s.Elapsed+took
		s.Latencies = append(s.Latencies, took)
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
