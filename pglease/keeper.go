package pglease

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
)

// batchSize bounds the leases that one statement renews. Larger statements gain little and hold
// row locks for longer.
const batchSize = 500

// due is a lease's place in the keeper's schedule.
type due struct {
	at    time.Time
	index int  // in the heap, from 1; 0 when it is not in it
	tries int  // failed attempts since the last success
	kept  bool // counted by the keeper
}

// keeper renews the leases of one client: one goroutine, one connection, whatever their number.
type keeper struct {
	auth   authority.Authority
	config Config
	events *events
	heard  func(sent, database time.Time) bool  // told of the database's clock in each reply; tells whether it was set forward
	saw    func(fence int64) (generation int64) // told of the fences that the server grants now

	wake   chan struct{} // something is due before the goroutine wakes by itself
	joined chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	heap    schedule
	asleep  time.Time             // until when the goroutine sleeps; zero while it does not
	ttls    map[time.Duration]int // of the leases that are kept, with their numbers
	running bool
	stop    context.CancelFunc
}

func newKeeper(c *Client) *keeper {
	return &keeper{
		auth: c.auth, config: c.config, events: c.events, heard: c.heard, saw: c.saw,
		wake: make(chan struct{}, 1), joined: make(chan struct{}), ttls: map[time.Duration]int{},
	}
}

// add schedules the first renewal, somewhere in the last third of the interval, so that leases
// which were acquired together are not renewed together.
func (k *keeper) add(l *Lease) {
	first := l.timing.renewEvery - time.Duration(rand.Int64N(int64(l.timing.renewEvery)/3+1))
	left, whole := l.Remaining(), l.timing.trust(l.timing.ttl)
	if l.unproven {
		first, whole = unprovenShare(first), unprovenShare(whole)
	}
	spent := whole - left // since it was granted, or perhaps before
	k.count(l)
	k.schedule(l, max(0, min(first-spent, left/3)), 0)
	if l.State().Over() { // and was removed before it was added
		k.remove(l)
	}
}

// count takes the lease's TTL into account until it is removed.
func (k *keeper) count(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !l.due.kept {
		l.due.kept = true
		k.ttls[l.timing.ttl]++
	}
}

// schedule puts the lease's next renewal at a time from now.
func (k *keeper) schedule(l *Lease, after time.Duration, tries int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.due.at, l.due.tries = time.Now().Add(after), tries
	if l.due.index == 0 {
		heap.Push(&k.heap, l)
	} else {
		heap.Fix(&k.heap, l.due.index-1)
	}
	if !k.running {
		k.running = true
		ctx, stop := context.WithCancel(context.Background())
		k.stop = stop
		go k.run(ctx)
	}
	if l.due.at.Before(k.asleep) {
		k.asleep = l.due.at
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

// remove takes the lease out of the schedule; a renewal that is under way goes on.
func (k *keeper) remove(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.due.kept {
		l.due.kept = false
		k.ttls[l.timing.ttl]--
		if k.ttls[l.timing.ttl] == 0 {
			delete(k.ttls, l.timing.ttl)
		}
	}
	if l.due.index != 0 {
		heap.Remove(&k.heap, l.due.index-1)
	}
}

// close ends the goroutine and waits for it.
func (k *keeper) close() {
	k.mu.Lock()
	running, stop := k.running, k.stop
	k.running = true // so that it is not started again
	k.mu.Unlock()
	if !running {
		return
	}
	if stop != nil {
		stop()
		<-k.joined
	}
}

func (k *keeper) run(ctx context.Context) {
	defer close(k.joined)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		batch, wait := k.take()
		if len(batch) > 0 {
			k.renew(ctx, batch)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-k.wake:
		case <-ctx.Done():
		}
	}
}

// take removes what is due, or will be so soon that it may share a statement, from the schedule.
// Otherwise it says how long to wait, which is never until later than was said before: a lease that is released long
// before it is due then wakes the goroutine once, in vain, and the next such lease not at all.
func (k *keeper) take() (batch []*Lease, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	next := now.Add(time.Hour)
	if len(k.heap) > 0 {
		next = k.heap[0].due.at
	}
	if next.After(now) {
		if !k.asleep.After(now) || next.Before(k.asleep) {
			k.asleep = next
		}
		return nil, k.asleep.Sub(now)
	}
	k.asleep = time.Time{}
	horizon := now.Add(k.heap[0].timing.renewEvery / 64)
	for len(k.heap) > 0 && len(batch) < batchSize && !k.heap[0].due.at.After(horizon) {
		batch = append(batch, heap.Pop(&k.heap).(*Lease))
	}
	return batch, 0
}

// renew makes one attempt at a batch. The attempt ends before the first of the leases is lost, so
// that nothing of a lease is under way after its loss was told.
func (k *keeper) renew(ctx context.Context, batch []*Lease) {
	flight := make(chan struct{})
	defer close(flight)
	now := time.Now()
	limit := now.Add(min(k.config.RequestTimeout, k.patience()))
	flying := batch[:0]
	for _, l := range batch {
		deadline, ok := l.takeOff(flight)
		if !ok {
			continue
		}
		flying = append(flying, l)
		// A third of the trust for one attempt, connecting included, so that there is time for another.
		limit = earliest(limit, deadline.Add(-l.timing.unitOfWork/16), now.Add(max(deadline.Sub(now)/3, l.timing.renewEvery)))
	}
	if len(flying) == 0 {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	left, err := k.send(ctx, flying)
	if err == nil && len(left) > 0 {
		err = k.inquire(ctx, left)
	}
	if err != nil {
		k.failed(left, err)
	}
	for _, l := range flying {
		l.landed()
	}
}

// patience is how long one attempt may last for the sake of the leases that are not part of it: a
// quarter of the shortest TTL, so that an attempt which hangs leaves each of them time for its own.
func (k *keeper) patience() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	shortest := MaxTTL
	for ttl := range k.ttls {
		shortest = min(shortest, ttl)
	}
	return shortest / 4
}

func earliest(t time.Time, others ...time.Time) time.Time {
	for _, other := range others {
		if other.Before(t) {
			t = other
		}
	}
	return t
}

// send renews and returns the leases that were left out, or all of them with the error.
func (k *keeper) send(ctx context.Context, flying []*Lease) (left []*Lease, err error) {
	sent := time.Now()
	renewals, err := k.auth.Renew(ctx, tokens(flying), k.saw(0))
	if err != nil {
		return flying, err
	}
	stepped := false
	renewed := make(map[fence.LeaseID]authority.Renewal, len(renewals))
	for i, r := range renewals {
		renewed[r.Lease] = r
		if i == 0 {
			stepped = k.heard(sent, r.DatabaseTime) // before the leases of this batch are confirmed
			k.saw(r.Floor)
		}
	}
	for _, l := range flying {
		r, ok := renewed[l.token.LeaseID()]
		if !ok {
			left = append(left, l)
			continue
		}
		next := l.timing.renewEvery - time.Duration(rand.Int64N(int64(l.timing.renewEvery)/10+1))
		if l.renewed(confirmation{sent: sent, remaining: r.Remaining, awaited: r.Awaited, stepped: stepped}) {
			next = 0
		}
		k.again(l, next, 0)
	}
	return left, nil
}

// inquire tells the leases that a renewal left out apart: over, or only locked by somebody.
func (k *keeper) inquire(ctx context.Context, left []*Lease) error {
	sent := time.Now()
	ends, err := k.auth.Ends(ctx, tokens(left))
	if err != nil {
		return err
	}
	if len(ends) > 0 {
		k.heard(sent, ends[0].DatabaseTime) // a renewal of leases that a step has ended tells no time
	}
	byID := make(map[fence.LeaseID]authority.End, len(ends))
	for _, e := range ends {
		byID[e.Lease] = e
	}
	var locked []*Lease
	for _, l := range left {
		end := byID[l.token.LeaseID()]
		if end.Current {
			locked = append(locked, l)
			continue
		}
		l.lostTo(lossOf(end))
	}
	if len(locked) > 0 {
		k.failed(locked, errRowLocked)
	}
	return nil
}

// errRowLocked is why a renewal left a lease out that is current.
var errRowLocked = errors.New("another session holds a lock on the lease's row")

// lossOf is the loss that the history tells of.
func lossOf(end authority.End) *LostError {
	switch {
	case end.Ended == authority.EndBroken:
		return &LostError{Cause: ErrBroken, By: end.By, Reason: end.Reason}
	case end.Ended == authority.EndReleased:
		return &LostError{Cause: ErrReleased}
	case end.Taken:
		return &LostError{Cause: ErrTakenOver}
	}
	return &LostError{Cause: ErrExpired}
}

// failed schedules another attempt for leases whose renewal may or may not have taken effect. A
// renewal does not change the identity, so repeating it is harmless either way.
func (k *keeper) failed(left []*Lease, err error) {
	k.events.emit(Event{Kind: EventRenewError, Owner: k.config.Owner, Leases: len(left), Err: err})
	k.config.Logger.Warn("renewal failed", "leases", len(left), "kind", authority.KindOf(err).String(), "err", err)
	for _, l := range left {
		l.renewFailed(err)
		k.again(l, k.backoff(l), l.due.tries+1)
	}
}

// again schedules a lease that is not over.
func (k *keeper) again(l *Lease, after time.Duration, tries int) {
	if !l.State().Over() {
		k.schedule(l, after, tries)
	}
}

// backoff grows from a fortieth of the interval to a quarter, with jitter.
func (k *keeper) backoff(l *Lease) time.Duration {
	most := l.timing.renewEvery / 40 << min(l.due.tries, 3)
	return most/2 + time.Duration(rand.Int64N(int64(most)/2+1))
}

func tokens(leases []*Lease) []fence.Token {
	list := make([]fence.Token, len(leases))
	for i, l := range leases {
		list[i] = l.token
	}
	return list
}

// schedule is a heap of leases, the next renewal first.
type schedule []*Lease

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.at.Before(s[j].due.at) }

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].due.index, s[j].due.index = i+1, j+1
}

func (s *schedule) Push(x any) {
	l := x.(*Lease)
	*s = append(*s, l)
	l.due.index = len(*s)
}

func (s *schedule) Pop() any {
	old := *s
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*s = old[:len(old)-1]
	l.due.index = 0
	return l
}
