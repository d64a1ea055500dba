package pglease

import (
	"fmt"
	"sync"
	"time"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
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
func (c *Client) heard(sent, database time.Time) (forward bool) {
	if database.IsZero() {
		return false
	}
	step := c.clock.read(sent, time.Now(), database)
	if step == 0 {
		return false
	}
	c.events.emit(Event{Kind: EventClockStep, Owner: c.config.Owner, Duration: step})
	c.config.Logger.Warn("the database's clock was set, or another server answers", "by", step)
	if step < 0 {
		return false // leases last longer, which is safe
	}
	now := time.Now()
	for _, l := range c.Leases() {
		if l.doubt(now) {
			c.keeper.schedule(l, 0, 0)
		}
	}
	return true
}

// doubt makes the lease suspect until a renewal is confirmed that is sent after now, and tells whether
// that can be. The reply to an earlier one may have been computed before the clock was set.
func (l *Lease) doubt(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inDoubt, l.doubted = true, now
	l.settle(now)
	return l.state == Suspect
}

// checkServer refuses a grant by an older generation than this client has seen: an old primary
// that came back grants fences that are lower than those granted since.
func (c *Client) checkServer(token fence.Token) error {
	if generation, seen := authority.Generation(token.Fence()), c.saw(token.Fence()); generation < seen {
		return fmt.Errorf("%w: it grants in generation %d, %d has been seen", ErrStaleServer, generation, seen)
	}
	return nil
}

// saw takes note of a fence that a server grants, and returns the highest generation seen.
func (c *Client) saw(fence int64) (generation int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation = max(c.generation, authority.Generation(fence))
	return c.generation
}
