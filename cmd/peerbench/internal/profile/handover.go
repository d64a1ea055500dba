package profile

import (
	"context"
	"errors"

	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
	"github.com/pglease/pglease/pglease"
)

const handOverNote = "The client's time is that of both clients, which live in one process. Each resource has one waiter, " +
	"and no other session listens."

// A party is one of two clients that hand over to each other.
type party struct {
	*session
	client *pglease.Client
	joined chan struct{} // one for each place in line
}

// handOver has one client wait for what the other holds, and be served; then the other way round.
func (s *stage) handOver(ctx context.Context) ([]load, error) {
	var parties [2]*party
	for i := range parties {
		var err error
		if parties[i], err = s.party(ctx); err != nil {
			return nil, err
		}
	}
	join := s.row("handover", "join", "Acquire, until it waits in line")
	release := s.row("handover", "release-awaited", "Release with a waiter, who is told")
	told := s.row("handover", "told", "the waiter's sessions meanwhile")
	held := make([]*pglease.Lease, many)
	holder, waiter := parties[0], parties[1]
	return []load{{
		begin: func(ctx context.Context) error { return holder.acquire(ctx, held) },
		cycle: func(ctx context.Context) error {
			granted := make([]chan grant, many)
			err := s.meter.times(ctx, join, waiter.pid, many, func(i int) (err error) {
				granted[i], err = waiter.wait(ctx, key("handover", i))
				return err
			})
			if err != nil {
				return err
			}
			err = s.meter.measure(ctx, func() (int, error) { return many, pass(ctx, held, granted) }, false,
				share{release, []uint32{holder.pid}}, share{told, waiter.alive()})
			holder, waiter = waiter, holder
			return err
		},
	}}, nil
}

func (s *stage) party(ctx context.Context) (*party, error) {
	p := &party{joined: make(chan struct{}, many)}
	var err error
	if p.session, err = s.session(ctx); err != nil {
		return nil, err
	}
	p.client, err = s.client(ctx, p.session, pglease.Config{Schema: peers.HistorySchema, Observer: pglease.ObserverFunc(func(e pglease.Event) {
		if e.Kind == pglease.EventWaiting {
			p.joined <- struct{}{}
		}
	})})
	return p, err
}

// acquire takes the resources where nobody holds them yet.
func (p *party) acquire(ctx context.Context, held []*pglease.Lease) (err error) {
	for i := range held {
		if held[i] == nil {
			if held[i], err = p.client.TryAcquire(ctx, key("handover", i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// A grant is the end of a wait.
type grant struct {
	lease *pglease.Lease
	err   error
}

var errNotWaiting = errors.New("a waiter was not left waiting")

// wait begins a wait and returns when it has its place in line.
func (p *party) wait(ctx context.Context, resource string) (chan grant, error) {
	granted := make(chan grant, 1)
	go func() {
		lease, err := p.client.Acquire(ctx, resource)
		granted <- grant{lease, err}
	}()
	select {
	case <-p.joined:
		return granted, nil
	case g := <-granted:
		return nil, errors.Join(errNotWaiting, g.err)
	}
}

// pass releases each of the leases, and awaits that its waiter has it.
func pass(ctx context.Context, held []*pglease.Lease, granted []chan grant) error {
	for i := range held {
		if err := held[i].Release(ctx); err != nil {
			return err
		}
		g := <-granted[i]
		if g.err != nil {
			return g.err
		}
		held[i] = g.lease
	}
	return nil
}
