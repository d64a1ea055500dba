package pglease

import (
	"context"
	"sync"
	"time"

	"github.com/pglease/pglease/pglease/internal/authority"
)

// How often a hand-over to another process is looked after, and how many times.
const (
	ghostEvery = 300 * time.Millisecond
	ghostLooks = 3
	ghostSure  = 4 // looks in a row that found nobody
)

// unprovenShare is what a waiter may trust of the TTL of a lease that another process handed to it, until it
// has renewed it. From then on nobody but its holder, or an operator, ends it early.
func unprovenShare(ttl time.Duration) time.Duration { return ttl / 2 }

// ghosts looks after leases that this client has just handed to waiters of other processes. One that
// dies in that instant is still believed alive, because the server has not noticed; nobody would
// miss it until its TTL ends. Its lease is released for it when the share of the TTL is over for which a live
// one would trust it unrenewed, and ghostSure looks in a row have found its session gone: a live one whose
// session broke has made another by then. A dead one cannot be told from one that is stopped and whose
// session was ended from elsewhere; that one finds its lease lost by its own clock when it goes on.
type ghosts struct {
	line *line

	mu      sync.Mutex
	watched map[string]*handed // by resource: only the last hand-over can be current
	closed  bool
	running bool
	stop    context.CancelFunc
	joined  chan struct{}
}

// handed is a hand-over that is looked after.
type handed struct {
	authority.Handover
	trusted time.Time // until then at most, where it is not renewed
	looks   int
	gone    int // looks in a row that found nobody
}

// watch looks after a hand-over for a while.
func (g *ghosts) watch(next authority.Handover) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || next.Token.IsZero() {
		return
	}
	// From now, which is after the grant: the waiter counts from before it, so it stops trusting first.
	g.watched[next.Token.Resource()] = &handed{Handover: next, trusted: time.Now().Add(unprovenShare(next.Remaining))}
	if g.running {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	before := g.joined
	g.running, g.stop, g.joined = true, stop, make(chan struct{})
	go func(joined chan struct{}) {
		defer close(joined)
		if before != nil {
			<-before
		}
		g.run(ctx)
	}(g.joined)
}

// forget is told that this client has been granted the resource: the hand-over before is past.
func (g *ghosts) forget(resource string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.watched, resource)
}

func (g *ghosts) run(ctx context.Context) {
	tick := time.NewTicker(ghostEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		g.look(ctx)
		if g.idle() {
			return
		}
	}
}

// idle tells that nothing is left to look after, and counts the goroutine out.
func (g *ghosts) idle() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = len(g.watched) > 0
	return !g.running
}

// look asks after all in one statement. One that fails says nothing of anybody.
func (g *ghosts) look(ctx context.Context) {
	asked := g.due()
	if len(asked) == 0 {
		return
	}
	limited, cancel := context.WithTimeout(ctx, g.line.client.config.RequestTimeout)
	defer cancel()
	list := make([]authority.Handover, len(asked))
	for i, h := range asked {
		list[i] = h.Handover
	}
	gone, err := g.line.client.auth.Ghosts(limited, list)
	for _, h := range asked {
		died, current := gone[h.Token.LeaseID()]
		switch {
		case err == nil && !current:
			g.drop(h)
		case !died:
			h.gone = 0
		case h.gone < ghostSure-1 || time.Now().Before(h.trusted):
			h.gone++
		default:
			g.drop(h)
			g.bury(limited, h.Handover)
		}
	}
}

// drop ends the care for a hand-over, unless there was another of its resource meanwhile.
func (g *ghosts) drop(h *handed) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if resource := h.Token.Resource(); g.watched[resource] == h {
		delete(g.watched, resource)
	}
}

func (g *ghosts) bury(ctx context.Context, h authority.Handover) {
	sent := time.Now()
	next, err := g.line.client.auth.Bury(ctx, h)
	if err != nil {
		g.line.client.config.Logger.Warn("a lease of a process that has died was not ended; it ends with its TTL",
			"resource", h.Token.Resource(), "err", err)
		return
	}
	g.line.serve(ctx, sent, next)
}

// due counts a look at each, and drops those that were seen often enough. One that was found gone is left
// alone for as long as it may be trusted.
func (g *ghosts) due() []*handed {
	g.mu.Lock()
	defer g.mu.Unlock()
	var asked []*handed
	for resource, h := range g.watched {
		if h.gone >= ghostSure && time.Now().Before(h.trusted) {
			continue
		}
		h.looks++
		if h.looks > ghostLooks && h.gone == 0 {
			delete(g.watched, resource)
			continue
		}
		asked = append(asked, h)
	}
	return asked
}

// close ends the goroutine and waits for it.
func (g *ghosts) close() {
	g.mu.Lock()
	g.closed = true
	stop, joined := g.stop, g.joined
	g.mu.Unlock()
	if stop != nil {
		stop()
		<-joined
	}
}
