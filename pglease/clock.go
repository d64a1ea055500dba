package pglease

import (
	"fmt"
	"sync"
	"time"

	"github.com/pglease/pglease/pglease/fence"
)

// clockTolerance is what two readings of a good clock may differ by beyond their round trips.
const clockTolerance = 250 * time.Millisecond

// clockWatch compares the database's clock, which every reply carries, with this process's
// monotonic clock. It sees the database's clock being set, and another server with another clock
// taking over. It never corrects anything.
type clockWatch struct {
	drift float64
	start time.Time // a reading of our clock, for its monotonic part

	mu     sync.Mutex
	known  bool
	offset time.Duration // database's clock less ours at the last reading
	error  time.Duration // how far off that may be
	at     time.Time
}

// read takes a reading that was made between sent and received, and returns by how much the
// database's clock was set since the last one: 0 where nothing beyond doubt is seen.
func (w *clockWatch) read(sent, received, database time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	trip := received.Sub(sent)
	offset := database.Sub(w.start) - sent.Sub(w.start) - trip/2 // the second Sub is monotonic
	doubt := trip / 2
	step := offset - w.offset
	allowed := clockTolerance + doubt + w.error + time.Duration(w.drift*float64(received.Sub(w.at)))
	known := w.known
	w.known, w.offset, w.error, w.at = true, offset, doubt, received
	if !known || (step <= allowed && step >= -allowed) {
		return 0
	}
	return step
}

// heard takes note of the database's clock in a reply. When that clock was set forward, leases may
// have ended early and been granted to others: every lease is in doubt until its next renewal is
// confirmed, which is sent at once.
func (c *Client) heard(sent, database time.Time) {
	if database.IsZero() {
		return
	}
	step := c.clock.read(sent, time.Now(), database)
	if step == 0 {
		return
	}
	c.events.emit(Event{Kind: EventClockStep, Owner: c.config.Owner, Duration: step})
	c.config.Logger.Warn("the database's clock was set, or another server answers", "by", step)
	if step < 0 {
		return // leases last longer, which is safe
	}
	for _, l := range c.Leases() {
		if l.doubt() {
			c.keeper.schedule(l, 0, 0)
		}
	}
}

// doubt makes the lease suspect until its next renewal is confirmed, and tells whether that can be.
func (l *Lease) doubt() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inDoubt = true
	l.settle(time.Now())
	return l.state == Suspect
}

// checkServer refuses a grant by an older generation than this client has seen: an old primary
// that came back grants fences that are lower than those granted since.
func (c *Client) checkServer(token fence.Token) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	generation := token.Fence() >> generationShift
	if generation < c.generation {
		return fmt.Errorf("%w: it grants in generation %d, %d has been seen", ErrStaleServer, generation, c.generation)
	}
	c.generation = generation
	return nil
}

// generationShift is where a fence's generation begins; below it are milliseconds.
const generationShift = 41
