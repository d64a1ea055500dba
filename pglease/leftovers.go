package pglease

import (
	"context"
	"sync"
	"time"

	"github.com/pglease/pglease/pglease/internal/authority"
)

// How long to pause before a place is given up once more.
const (
	leaveAgainAfter = 100 * time.Millisecond
	leaveAgainMost  = 5 * time.Second
)

// leftovers are places in line whose waiters have gone, and could not give them up in time. Their client lives, so
// each would be served in its turn, and its resource be idle for a TTL: so it is tried until it is done. They are
// tried one after the other, as the database may be what was too slow.
type leftovers struct {
	client *Client

	mu      sync.Mutex
	places  []authority.Place
	running bool               // the goroutine lives
	closed  bool               // nothing is added any more
	stop    context.CancelFunc // ends the goroutine
	joined  sync.WaitGroup
}

// add takes a place over from its waiter.
func (o *leftovers) add(at authority.Place) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	o.places = append(o.places, at)
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

func (o *leftovers) run(ctx context.Context) {
	wait := leaveAgainAfter
	for pause(ctx, wait) {
		wait = min(2*wait, leaveAgainMost)
		at, some := o.first()
		for some && o.leave(ctx, at) {
			wait = leaveAgainAfter
			at, some = o.next()
		}
		if !some {
			return
		}
	}
}

// first returns the place to be left; where there is none the goroutine is counted out.
func (o *leftovers) first() (at authority.Place, some bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running = len(o.places) > 0; !o.running {
		return authority.Place{}, false
	}
	return o.places[0], true
}

// next is first, when the one before it was left.
func (o *leftovers) next() (at authority.Place, some bool) {
	o.mu.Lock()
	o.places = o.places[1:]
	o.mu.Unlock()
	return o.first()
}

// leave tells whether nothing is left to do for a place.
func (o *leftovers) leave(ctx context.Context, at authority.Place) bool {
	limited, cancel := context.WithTimeout(ctx, o.client.config.RequestTimeout)
	defer cancel()
	err := o.client.giveUpPlace(limited, at)
	if err != nil {
		o.client.config.Logger.Warn("a place in line could not be left", "resource", at.Resource, "err", err)
	}
	return err == nil || authority.KindOf(err) == authority.Definitive
}

// close ends the goroutine and waits for it. What it has not left is the database's to pass over, as the client is gone.
func (o *leftovers) close() {
	o.mu.Lock()
	o.closed = true
	if o.stop != nil {
		o.stop()
	}
	o.mu.Unlock()
	o.joined.Wait()
}
