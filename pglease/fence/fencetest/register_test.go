package fencetest_test

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/fencetest"
)

// A register is a protected resource in memory.
type register struct {
	flaws

	mu       sync.Mutex
	touched  bool
	fence    int64
	lease    fence.LeaseID
	sequence int64
	history  []fencetest.Entry
	left     *fencetest.Entry // by a crash
	done     string           // what a crash has marked as done
}

// flaws are ways to get it wrong.
type flaws struct {
	judge    func(*register, fence.Token) error // default: right
	forget   func(*register)                    // called with each write that took effect
	unlocked bool                               // the check and the effect are two steps
	silent   bool                               // Establish does nothing
	again    bool                               // a repeated command takes effect again
	anyOrder bool                               // the sequence is not looked at
	torn     bool                               // a crash leaves the effect without the watermark
	late     bool                               // what a crash left is done after the next write
	reset    bool                               // a crash loses the watermark
	marked   bool                               // a crash leaves the command marked as done, and not done
	misnamed bool                               // the history names another lease
}

// right is the rule: lower is stale, equal is for the same lease.
func right(r *register, t fence.Token) error {
	c := cmp.Compare(t.Fence(), r.fence)
	if r.touched && (c < 0 || c == 0 && t.LeaseID() != r.lease) {
		return r.stale(t)
	}
	return nil
}

func (r *register) stale(t fence.Token) error {
	return &fence.StaleError{Resource: t.Resource(), Fence: t.Fence(), LeaseID: t.LeaseID(), GreatestFence: r.fence, GreatestLeaseID: r.lease}
}

func (r *register) check(t fence.Token) error {
	if r.judge != nil {
		return r.judge(r, t)
	}
	return right(r, t)
}

func (r *register) raise(t fence.Token) {
	if !r.touched || t.Fence() != r.fence {
		r.sequence = 0
	}
	r.touched, r.fence, r.lease = true, t.Fence(), t.LeaseID()
}

func (r *register) applied(id string) bool {
	for _, e := range r.history {
		if e.Command == id {
			return true
		}
	}
	return false
}

func (r *register) write(_ context.Context, t fence.Token, c fencetest.Command) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.check(t); err != nil {
		return err
	}
	if r.unlocked {
		r.mu.Unlock()
		runtime.Gosched()
		r.mu.Lock()
	}
	r.raise(t)
	if !r.again && (r.applied(c.ID) || c.ID == r.done) {
		return nil
	}
	if c.Sequence < r.sequence && !r.anyOrder {
		return &fence.OrderError{Sequence: c.Sequence, Last: r.sequence}
	}
	r.sequence = c.Sequence
	e := entry(t, c)
	if r.misnamed {
		e.LeaseID = fence.LeaseID{1}
	}
	r.history = append(r.history, e)
	if r.left != nil {
		r.history, r.left = append(r.history, *r.left), nil
	}
	if r.forget != nil {
		r.forget(r)
	}
	return nil
}

func entry(t fence.Token, c fencetest.Command) fencetest.Entry {
	return fencetest.Entry{Command: c.ID, Fence: t.Fence(), LeaseID: t.LeaseID()}
}

func (r *register) establish(_ context.Context, t fence.Token) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silent {
		return nil
	}
	if err := r.check(t); err != nil {
		return err
	}
	r.raise(t)
	return nil
}

func (r *register) crash(_ context.Context, t fence.Token, c fencetest.Command) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.check(t); err != nil {
		return err
	}
	e := entry(t, c)
	switch {
	case r.torn:
		e.Command = c.ID[:len(c.ID)/2]
		r.history = append(r.history, e)
	case r.late:
		r.left = &e
	case r.reset:
		r.touched = false
	case r.marked:
		r.done = c.ID
	default:
		r.raise(t)
	}
	return fmt.Errorf("died")
}

func (r *register) resource() fencetest.Resource {
	return fencetest.Resource{
		Write:     r.write,
		Establish: r.establish,
		Crash:     r.crash,
		Sequences: true,
		Repeats:   true,
		History: func(context.Context) ([]fencetest.Entry, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return append([]fencetest.Entry(nil), r.history...), nil
		},
	}
}
