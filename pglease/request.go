package pglease

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
)

// RequestID names one acquire, so that it can be sent again when its reply was lost: the same
// request gets the same lease, and each request is granted at most once.
type RequestID [16]byte

// NewRequestID returns a UUID of version 7. Its first bits are the time, which keeps the index of
// the history compact; nothing depends on their order.
func NewRequestID() RequestID {
	var id RequestID
	_, _ = rand.Read(id[:]) // never fails, see crypto/rand
	binary.BigEndian.PutUint16(id[0:], uint16(time.Now().UnixMilli()>>32))
	binary.BigEndian.PutUint32(id[2:], uint32(time.Now().UnixMilli()))
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// String returns the UUID in its usual form.
func (id RequestID) String() string { return fence.LeaseID(id).String() }

// An AcquireOption changes one call of TryAcquire, Acquire or Do.
type AcquireOption func(*request)

// WithTTL sets the lease's TTL for this call, 100 ms to 24 h; the renewal interval and the unit of
// work scale with it.
func WithTTL(ttl time.Duration) AcquireOption {
	return func(r *request) { r.TTL = ttl }
}

// WithRequestID names the request. Call again with the same id after an error that matches
// ErrUnknownOutcome: if the first call was granted, the same lease comes back, with the same
// fence. The id counts for one resource; who shares it between processes shares the lease, and either
// may end it. Without this option the client names each call itself, and resolves unknown outcomes
// before it returns.
func WithRequestID(id RequestID) AcquireOption {
	return func(r *request) { r.ID, r.named = authority.ID(id), true }
}

// WithMaxWait bounds how long Acquire or Do waits for the resource, beside the context.
func WithMaxWait(d time.Duration) AcquireOption {
	return func(r *request) { r.maxWait, r.bounded = d, true }
}

// WithLockDelay keeps the resource free for a while when this lease expires, though not when it is
// released. It gives work that is still under way time to end, for resources that cannot check a
// fence. At most 24 h.
func WithLockDelay(d time.Duration) AcquireOption {
	return func(r *request) { r.LockDelay = d }
}

// WithMode says whether a call keeps to the line. Default FIFO.
func WithMode(m Mode) AcquireOption {
	return func(r *request) { r.Barging = m == Barging }
}

// Mode is how a call waits.
type Mode int

const (
	// FIFO: served in the order of coming, by a hand-over within the release.
	FIFO Mode = iota
	// Barging: woken to try when the resource is free, and whoever comes first gets it, those who do
	// not wait too. It gives the owner that releases and acquires again more throughput, and those
	// who wait no order.
	Barging
)

// request is one call to acquire, with its options applied.
type request struct {
	authority.Request
	named   bool // by the caller
	sent    bool // to the database, under this id
	open    bool // a try under this id may have taken a place, or been granted, or may yet be when its packet arrives
	waits   bool // for the resource, in line if need be
	waited  bool // in line
	served  bool // its grant was told by the line
	proven  bool // and it was made by this client itself
	timing  timing
	began   time.Time
	maxWait time.Duration
	bounded bool // by maxWait
}

// anew gives the request another id.
func (r *request) anew() {
	r.ID, r.sent, r.open, r.served = authority.ID(NewRequestID()), false, false, false
}

func (c *Client) newRequest(resource string, options []AcquireOption) (request, error) {
	r := request{
		Request: authority.Request{Resource: resource, Owner: c.config.Owner, TTL: c.config.TTL, LockDelay: c.config.LockDelay},
		began:   time.Now(),
	}
	for _, option := range options {
		option(&r)
	}
	if !r.named {
		r.anew()
	}
	err := errors.Join(fence.CheckResource(resource), checkTTL(r.TTL),
		refuse(r.ID == authority.ID{}, "the request id is zero"),
		refuse(r.LockDelay < 0 || r.LockDelay > MaxTTL, "lock delay %v is not between 0 and %v", r.LockDelay, MaxTTL),
		refuse(r.bounded && r.maxWait <= 0, "MaxWait %v is not above zero", r.maxWait))
	if err != nil && !errors.Is(err, ErrInvalidResource) {
		err = fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	r.timing = c.config.timing(r.TTL)
	return r, err
}
