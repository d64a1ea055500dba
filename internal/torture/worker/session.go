package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pglease/pglease/internal/torture/history"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
)

// A session is one goroutine of a process: it works under one lease after the other.
type session struct {
	*process
	number int
	name   string
	random *rand.Rand
}

// chance is true in so many cases out of one.
func (s *session) chance(p float64) bool { return s.random.Float64() < p }

// upTo draws a duration below d.
func (s *session) upTo(d time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(max(d, 1))))
}

// within bounds a call.
func (s *session) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.order.TTL+s.upTo(s.order.TTL/2))
}

func (s *session) run(ctx context.Context) {
	for !s.stopping() {
		n := s.random.IntN(len(s.order.Resources))
		if !s.locks[n].TryLock() {
			pause(ctx, s.upTo(2*time.Millisecond))
			continue
		}
		if lease := s.acquire(ctx, s.order.Resources[n]); lease != nil {
			s.tenure(ctx, n, lease)
		}
		s.locks[n].Unlock()
		if s.chance(0.1) {
			pause(ctx, s.upTo(s.order.Hold))
		}
	}
}

// tries is how often at most a call is made under one request.
const tries = 4

// acquire tries, or waits in line. Where the outcome of a call that names its request is not known, most
// callers make it again, as the library says they may; some give up.
func (s *session) acquire(ctx context.Context, resource string) *pglease.Lease {
	c := history.Call{Call: history.Acquire, Resource: resource}
	if s.chance(0.5) {
		c.Call = history.TryAcquire
	}
	var options []pglease.AcquireOption
	if s.chance(0.5) {
		id := pglease.NewRequestID()
		c.Request = id.String()
		options = append(options, pglease.WithRequestID(id))
	}
	for range tries {
		var lease *pglease.Lease
		var over bool // the request was granted, and is over or was given up
		done := s.record.call(c, func(c *history.Call) {
			var err error
			lease, err = s.ask(ctx, c.Call, resource, options)
			settleAcquire(c, err)
			if lease != nil {
				c.Fence, c.Lease = lease.Token().Fence(), lease.Token().LeaseID().String()
			}
			over = errors.Is(err, pglease.ErrRequestSpent)
		})
		if lease != nil {
			return lease
		}
		if done.Outcome != history.Unknown || over || s.stopping() {
			return nil
		}
		if s.chance(0.2) {
			return nil // and nobody asks what became of it
		}
		pause(ctx, s.upTo(s.order.TTL/4))
	}
	return nil
}

// settleAcquire writes the outcome of an acquire down. The caller of a call that does not name its
// request has nothing after any error, and cannot ask what became of it.
func settleAcquire(c *history.Call, err error) {
	settle(c, err, reason{pglease.ErrHeld, history.Held}, reason{pglease.ErrQueueFull, history.Held})
	if err != nil && c.Request == "" {
		c.Outcome = history.Refused
	}
}

func (s *session) ask(ctx context.Context, call, resource string, options []pglease.AcquireOption) (*pglease.Lease, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	if call == history.TryAcquire {
		return s.client.TryAcquire(ctx, resource, options...)
	}
	options = append(options, pglease.WithMaxWait(s.order.TTL/10+s.upTo(s.order.TTL)))
	return s.client.Acquire(ctx, resource, options...)
}

// tenure works under a lease, and gives it back.
func (s *session) tenure(ctx context.Context, n int, lease *pglease.Lease) {
	careless := s.chance(s.order.Careless)
	w := work{session: s, resource: n, lease: lease, token: lease.Token()}
	if s.order.Planted == PlantForgery && s.chance(0.2) {
		w.token = forged(w.token)
	}
	for range 1 + s.random.IntN(2) {
		if !careless && lease.Admit(0) != nil {
			break
		}
		if !w.unit(ctx) && !careless {
			break
		}
		if s.stopping() {
			break
		}
	}
	s.giveBack(ctx, lease)
}

// giveBack releases, more than once where that is not confirmed; or now and then forgets to, and the
// lease is renewed until MaxHold and then runs out.
func (s *session) giveBack(ctx context.Context, lease *pglease.Lease) {
	if s.chance(0.01) {
		return
	}
	for range 3 {
		if s.release(ctx, lease) != history.Unknown || s.stopping() {
			return
		}
	}
}

func (p *process) release(ctx context.Context, lease *pglease.Lease) history.Outcome {
	c := p.record.call(of(history.Release, "", lease.Token()), func(c *history.Call) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.order.TTL)
		defer cancel()
		settle(c, lease.Release(ctx), reason{pglease.ErrLost, history.Lost})
	})
	return c.Outcome
}

// of begins the record of a call under a token.
func of(call, store string, token fence.Token) history.Call {
	return history.Call{
		Call: call, Store: store, Resource: token.Resource(), Fence: token.Fence(), Lease: token.LeaseID().String(),
	}
}
