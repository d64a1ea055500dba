package pgleasetest

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Faults tampers with connections to a real server, at the level of the messages between them. A
// fake server forgets what it should have committed; here the server is real and only the network
// lies.
//
// All connections of the pools that one Faults made share its rules. A statement is matched when
// it is executed, by its SQL as it was written, also where it was prepared earlier. Several rules
// may wait at once; each strikes once, at the first statement that it matches, and of two that
// match the same the older one strikes.
//
// A Faults is made by [NewFaults] and safe for concurrent use.
type Faults struct {
	mu     sync.Mutex
	rules  []*Fault
	before []func(sql string)
	conns  map[*faultyConn]struct{}
	thawed chan struct{} // not nil while frozen; closed by Unfreeze
}

// Fault is one rule: wait for its statement, and strike.
type Fault struct {
	match  func(sql string) bool
	kind   faultKind
	struck chan struct{}
}

type faultKind int

const (
	loseReply faultKind = iota
	failSend
)

// Done is closed when the fault has struck: for LoseNextReply, when the server has answered and
// the answer is thrown away, and for FailNextSend, when the request is.
func (f *Fault) Done() <-chan struct{} { return f.struck }

// NewFaults returns Faults without a rule. Connections through it behave as they would anyway.
func NewFaults() *Faults {
	return &Faults{conns: make(map[*faultyConn]struct{})}
}

// Pool returns a pool whose connections go through f. It is closed when the test is done, frozen
// or not.
func (f *Faults) Pool(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatalf("pgleasetest: %v", err)
	}
	f.Configure(config)
	pool := open(tb, config)
	tb.Cleanup(f.Close) // runs before the pool's, which would wait for frozen connections
	return pool
}

// Configure makes the connections of a pool go through f. Call [Faults.Close] before the pool is
// closed.
func (f *Faults) Configure(config *pgxpool.Config) {
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := f.awaitThaw(ctx); err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		return dial(ctx, network, address)
	}
	after := config.ConnConfig.AfterNetConnect // after TLS, which would hide the messages
	config.ConnConfig.AfterNetConnect = func(ctx context.Context, c *pgconn.Config, conn net.Conn) (net.Conn, error) {
		if after != nil {
			var err error
			if conn, err = after(ctx, c, conn); err != nil {
				return nil, err
			}
		}
		return f.wrap(conn), nil
	}
}

// Close ends what is frozen: all connections that go through f are closed, and new ones pass.
// It may be called again.
func (f *Faults) Close() {
	for _, c := range f.open() {
		c.abort(net.ErrClosed)
	}
	f.Unfreeze()
}

// LoseNextReply lets the next statement that matches reach the server and be executed, and throws
// the whole answer away, up to the server's word that it is ready for more. Then the connection
// breaks. Outside an explicit transaction the statement is committed by then; to lose the reply to
// a commit, match "commit". A nil match matches any statement.
func (f *Faults) LoseNextReply(match func(sql string) bool) *Fault {
	return f.add(loseReply, match)
}

// FailNextSend keeps the next statement that matches, and what is sent together with it, from the
// server. Then the connection breaks. To the client it looks as with [Faults.LoseNextReply]: it
// cannot know whether the statement was executed. A nil match matches any statement.
func (f *Faults) FailNextSend(match func(sql string) bool) *Fault {
	return f.add(failSend, match)
}

// BeforeStatement has fn called with each statement before it is sent. It runs on the goroutine
// that sends: while it blocks, the statement waits. It must not use the same connection. All
// functions that are given are called, in their order.
func (f *Faults) BeforeStatement(fn func(sql string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = append(f.before, fn)
}

// Freeze makes the network go silent, with no error: what is sent is accepted and does not arrive,
// in both directions, and connecting does not end. Calls block until their deadline or Unfreeze.
// The server keeps the sessions, also of connections that the client closes meanwhile.
func (f *Faults) Freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thawed == nil {
		f.thawed = make(chan struct{})
	}
}

// Unfreeze ends Freeze. What was sent meanwhile arrives now, late, as it does when a network comes
// back before TCP gives up: also where the client has closed the connection since, or given up on
// its call.
func (f *Faults) Unfreeze() {
	f.mu.Lock()
	thawed := f.thawed
	f.thawed = nil
	f.mu.Unlock()
	if thawed == nil {
		return
	}
	close(thawed)
	for _, c := range f.open() {
		c.thaw()
	}
}

func (f *Faults) add(kind faultKind, match func(sql string) bool) *Fault {
	if match == nil {
		match = func(string) bool { return true }
	}
	rule := &Fault{match: match, kind: kind, struck: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, rule)
	return rule
}

// statement is called for each statement before it is sent, and takes the rule that it matches.
func (f *Faults) statement(sql string) *Fault {
	f.mu.Lock()
	before := f.before
	f.mu.Unlock()
	for _, fn := range before {
		fn(sql)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, rule := range f.rules {
		if rule.match(sql) {
			f.rules = append(f.rules[:i:i], f.rules[i+1:]...)
			return rule
		}
	}
	return nil
}

// putBack makes a rule that was taken and cannot strike wait again, before all others.
func (f *Faults) putBack(rule *Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append([]*Fault{rule}, f.rules...)
}

// frozen returns a channel that is closed at the next Unfreeze, and nil when nothing is frozen.
func (f *Faults) frozen() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thawed
}

func (f *Faults) awaitThaw(ctx context.Context) error {
	thawed := f.frozen()
	if thawed == nil {
		return nil
	}
	select {
	case <-thawed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *Faults) open() []*faultyConn {
	f.mu.Lock()
	defer f.mu.Unlock()
	conns := make([]*faultyConn, 0, len(f.conns))
	for c := range f.conns {
		conns = append(conns, c)
	}
	return conns
}

func (f *Faults) wrap(conn net.Conn) net.Conn {
	c := &faultyConn{
		Conn:     conn,
		faults:   f,
		outbound: newOutbound(),
		changed:  make(chan struct{}),
	}
	f.mu.Lock()
	f.conns[c] = struct{}{}
	f.mu.Unlock()
	go c.pump()
	return c
}

func (f *Faults) forget(c *faultyConn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
}
