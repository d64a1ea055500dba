package pglease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
)

// A Client acquires leases and keeps those that it holds. It is safe for concurrent use. Close it
// to give back what it holds; the pool stays open.
type Client struct {
	config Config
	auth   authority.Authority
	events *events
	keeper *keeper
	line   *line
	clock  clockWatch

	mu         sync.Mutex
	leases     map[fence.LeaseID]*Lease
	generation int64         // the highest seen in a fence
	acquires   int           // calls under way
	guarded    int           // calls of Do whose work has not returned
	closing    chan struct{} // closed when Close begins
	idle       chan struct{} // closed when Close has begun and no call is under way
	over       bool          // what was held has been given up; no more grants are taken
	closed     chan struct{} // closed when Close has ended; nil before it begins
}

// New returns a client of the authority in the pool's database. It checks the configuration and
// that the database has the migrations it needs; the error then matches ErrInvalidConfig or
// ErrSchema. The context bounds New alone. The client also opens one connection of its own, for
// renewals.
func New(ctx context.Context, pool *pgxpool.Pool, config Config) (*Client, error) {
	config, s, err := config.filled()
	if pool == nil {
		err = errors.Join(err, fmt.Errorf("%w: the pool is nil", ErrInvalidConfig))
	}
	if err != nil {
		return nil, &Error{Op: "new", Err: err}
	}
	auth := authority.NewPostgres(pool, s)
	c := newClient(auth, config)
	if err := c.CheckSchema(ctx); err != nil {
		return nil, errors.Join(err, c.events.close(ctx))
	}
	return c, nil
}

func newClient(auth authority.Authority, config Config) *Client {
	c := &Client{
		config: config, auth: auth, events: newEvents(config.Observer),
		leases: map[fence.LeaseID]*Lease{}, closing: make(chan struct{}), idle: make(chan struct{}),
	}
	c.clock = clockWatch{drift: config.ClockDrift, start: time.Now()}
	c.keeper = newKeeper(c)
	c.line = newLine(c)
	return c
}

// CheckSchema returns nil if the database has the migrations that this library needs, whichever
// tool brought them. Otherwise the error matches ErrSchema and names the command to run.
func (c *Client) CheckSchema(ctx context.Context) error {
	p, ok := c.auth.(*authority.Postgres)
	if !ok {
		return nil
	}
	version, err := p.Version(ctx)
	if err == nil && version < authority.SchemaVersion {
		err = fmt.Errorf("%w: it is at migration %d of line lease and %d is needed; run: pglease migrate up --line lease%s",
			ErrSchema, version, authority.SchemaVersion, c.schemaFlag())
	}
	if err != nil {
		return &Error{Op: "check schema", Err: err}
	}
	return nil
}

func (c *Client) schemaFlag() string {
	if c.config.Schema == "" {
		return ""
	}
	return fmt.Sprintf(" --schema %q", c.config.Schema)
}

// begin counts a call to acquire in, unless the client is closing or full.
func (c *Client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isClosing():
		return ErrClosed
	case c.acquires >= c.config.MaxAcquires:
		return fmt.Errorf("%w: %d", ErrTooManyAcquires, c.acquires)
	case len(c.leases)+c.acquires >= c.config.MaxLeases:
		return fmt.Errorf("%w: %d held, %d asked for", ErrTooManyLeases, len(c.leases), c.acquires)
	}
	c.acquires++
	return nil
}

// isClosing tells whether Close has begun.
func (c *Client) isClosing() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// ended counts a call of the given counter out.
func (c *Client) ended(counter *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*counter--
	c.signalIdle()
}

// signalIdle lets Close go on. c.mu is held.
func (c *Client) signalIdle() {
	if !c.isClosing() || c.acquires > 0 || c.guarded > 0 {
		return
	}
	select {
	case <-c.idle:
	default:
		close(c.idle)
	}
}

// adopt registers the handle of a grant, or returns the one that this client already has for it, or
// nil where the client has given up what it held.
func (c *Client) adopt(l *Lease) *Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	if known := c.leases[l.token.LeaseID()]; known != nil {
		return known
	}
	c.leases[l.token.LeaseID()] = l
	return l
}

// has tells whether somebody was given a lease that is not over.
func (c *Client) has(token fence.Token) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leases[token.LeaseID()] != nil
}

// forget drops a lease that is over.
func (c *Client) forget(l *Lease) {
	c.keeper.remove(l)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[l.token.LeaseID()] == l {
		delete(c.leases, l.token.LeaseID())
	}
}

// Leases returns the leases that are held now, in no order.
func (c *Client) Leases() []*Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*Lease, 0, len(c.leases))
	for _, l := range c.leases {
		list = append(list, l)
	}
	return list
}

// Close gives back what the client holds. It admits nothing new, waits until the calls under way
// and the work of Do have returned, releases every lease, and only then stops renewing and ends
// the client's goroutines. Repeated calls wait for the first, as long as their context lives, and
// return nil when it has ended.
//
// When the context ends first, the work's contexts are cancelled with ErrClosed and what is still
// held is given up: it is no longer renewed, and ends with its TTL. The error then matches the
// context's.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if first := c.closed; first != nil {
		c.mu.Unlock()
		return awaitClose(ctx, first)
	}
	c.closed = make(chan struct{})
	close(c.closing)
	c.signalIdle()
	c.mu.Unlock()
	defer close(c.closed)

	var err error
	select {
	case <-c.idle:
		err = c.releaseAll(ctx)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c.giveUp()
	c.line.close(ctx)
	c.keeper.close()
	c.auth.Close(ctx)
	err = errors.Join(err, c.events.close(ctx))
	if err != nil {
		return &Error{Op: "close", Err: err}
	}
	return nil
}

// awaitClose waits for the Close that came first.
func awaitClose(ctx context.Context, first <-chan struct{}) error {
	select {
	case <-first:
		return nil
	case <-ctx.Done():
		return &Error{Op: "close", Err: context.Cause(ctx)}
	}
}

// releasers is how many releases Close has under way at once.
const releasers = 8

// releaseAll releases what is held.
func (c *Client) releaseAll(ctx context.Context) error {
	leases := make(chan *Lease)
	failed := make(chan error, releasers)
	for range releasers {
		go func() { failed <- releaseEach(ctx, leases) }()
	}
	for _, l := range c.Leases() {
		leases <- l
	}
	close(leases)
	var err error
	for range releasers {
		if failure := <-failed; failure != nil {
			err = failure
		}
	}
	return err
}

// releaseEach releases what comes, each with a second try. After a lease that could not be released
// it only drains the channel, so that Close ends soon when the database is silent. A lease that
// turns out to be lost is as gone as one released.
func releaseEach(ctx context.Context, leases <-chan *Lease) (failure error) {
	for l := range leases {
		for try := 0; try < 2 && failure == nil; try++ {
			err := l.Release(ctx)
			if err == nil || errors.Is(err, ErrLost) {
				break
			}
			if try == 1 {
				failure = err
			}
		}
	}
	return failure
}

// giveUp ends, for this process, whatever is still held, and lets nothing follow.
func (c *Client) giveUp() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	for _, l := range c.Leases() {
		l.lostTo(&LostError{Cause: ErrClosed})
	}
}
