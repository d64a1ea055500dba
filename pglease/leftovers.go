package pglease

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pglease/pglease/pglease/internal/authority"
)

const (
	// How long to pause before what failed is tried once more, at first and at most.
	againAfter = 100 * time.Millisecond
	againMost  = 5 * time.Second

	// mostLeftovers is how much is kept; of more the oldest is left to its TTL.
	mostLeftovers = 1000
)

// leftovers are requests that nobody waits for any more, and that could not be ended in time: places in line, and
// acquires whose outcome is not known. Their client lives, so a place would be served in its turn, and a resource that
// was granted be idle for a TTL. So it is tried until it is done. They are tried one after the other, as the database
// may be what was too slow.
type leftovers struct {
	client *Client

	mu      sync.Mutex
	list    []leftover
	running bool               // the goroutine lives
	closed  bool               // nothing is added any more
	stop    context.CancelFunc // ends the goroutine
	joined  sync.WaitGroup
}

type leftover struct {
	resource string
	until    time.Time // of no use later; zero where it is not known when
	end      func(context.Context) error
}

// add takes over what a call could not end.
func (o *leftovers) add(left leftover) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	o.keep(left)
	if o.running {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	o.running, o.stop = true, stop
	o.joined.Go(func() {
		defer stop()
		o.run(ctx)
	})
}

// keep puts one behind the others. o.mu is held.
func (o *leftovers) keep(left leftover) {
	if len(o.list) >= mostLeftovers {
		o.list = slices.Delete(o.list, 0, 1)
	}
	o.list = append(o.list, left)
}

func (o *leftovers) run(ctx context.Context) {
	wait := againAfter
	for pause(ctx, wait) {
		left, some := o.take()
		for some && o.end(ctx, left) {
			wait = againAfter
			left, some = o.take()
		}
		if !some {
			return
		}
		o.mu.Lock()
		o.keep(left) // behind the others: its row may be locked, and theirs not
		o.mu.Unlock()
		wait = min(2*wait, againMost)
	}
}

// take returns the next one; where there is none the goroutine is counted out.
func (o *leftovers) take() (left leftover, some bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running = len(o.list) > 0; !o.running {
		return leftover{}, false
	}
	left = o.list[0]
	o.list = slices.Delete(o.list, 0, 1)
	return left, true
}

// end tells whether nothing is left to do.
func (o *leftovers) end(ctx context.Context, left leftover) bool {
	if !left.until.IsZero() && time.Now().After(left.until) {
		return true
	}
	limited, cancel := context.WithTimeout(ctx, o.client.config.RequestTimeout)
	defer cancel()
	err := left.end(limited)
	if err != nil && ctx.Err() == nil {
		o.client.config.Logger.Warn("a request that nobody waits for was not ended", "resource", left.resource, "err", err)
	}
	return err == nil || authority.KindOf(err) == authority.Definitive
}

// close ends the goroutine and waits for it. What is left ends with its TTL, and places are passed over, as the client
// is gone.
func (o *leftovers) close() {
	o.mu.Lock()
	o.closed = true
	if o.stop != nil {
		o.stop()
	}
	o.mu.Unlock()
	o.joined.Wait()
}
