package pgleasetest

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// errReset is what the client of a connection that a fault broke reads.
var errReset error = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}

// faultyConn is a connection between a client and a server that Faults tampers with. A goroutine
// reads from the server, whether or not the client does, so the answer to a lost statement is seen
// to its end also when the client has gone away.
type faultyConn struct {
	net.Conn // to the server
	faults   *Faults

	writing  sync.Mutex // held while messages are read and sent, in their order
	outbound *outbound
	group    []byte // messages held until the group that they belong to is whole
	rule     *Fault // what befalls the group being written
	held     []byte // written while frozen

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change of what follows
	pending  []*Fault      // for each answer to come, what befalls it, or nil
	inbound  []byte        // from the server, not yet read
	readErr  error         // after inbound
	closed   bool          // by the client
	deadline time.Time     // of reads
}

// Write accepts whatever is written, as a socket does.
func (c *faultyConn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if closed, broken := c.state(); closed || broken {
		return 0, net.ErrClosed
	}
	if c.faults.frozen() != nil || len(c.held) > 0 {
		c.held = append(c.held, b...)
		return len(b), nil
	}
	if err := c.send(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// send passes messages on, whole groups at once, so that none of a group arrives when a rule that
// its last statement matches keeps it back.
func (c *faultyConn) send(b []byte) error {
	for _, s := range c.outbound.add(b) {
		c.group = append(c.group, s.message...)
		if s.runs {
			if rule := c.faults.statement(s.sql); rule != nil {
				c.befall(rule)
			}
		}
		if s.hold {
			continue
		}
		group, rule := c.group, c.rule
		c.group = nil
		if rule != nil && rule.kind == failSend {
			c.abort(errReset)
			close(rule.struck)
			return nil
		}
		if s.answer {
			c.expect(rule)
			c.rule = nil
		}
		if _, err := c.Conn.Write(group); err != nil {
			return err
		}
	}
	return nil
}

// befall sets the rule for the group being written. One that is not sent has no reply to lose, so
// failSend wins, and the other rule waits for another statement.
func (c *faultyConn) befall(rule *Fault) {
	loser := rule
	if c.rule == nil || (c.rule.kind == loseReply && rule.kind == failSend) {
		c.rule, loser = rule, c.rule
	}
	if loser != nil {
		c.faults.putBack(loser)
	}
}

// expect notes that the server will answer, and what then befalls the answer.
func (c *faultyConn) expect(rule *Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = append(c.pending, rule)
}

// thaw sends what was written while all was frozen, and then that the client has closed, if it has.
func (c *faultyConn) thaw() {
	c.writing.Lock()
	defer c.writing.Unlock()
	held := c.held
	c.held = nil
	closed, broken := c.state()
	if broken {
		_ = c.Conn.Close()
	} else if err := c.send(held); err != nil {
		c.abort(err)
	} else if closed {
		c.hangUp()
	}
	c.change(func() {}) // reads go on
}

// hangUp says that the client sends no more. What was sent before still counts, and the server
// then closes; to close both directions at once could throw it away.
func (c *faultyConn) hangUp() {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		_ = c.Conn.Close()
	}
}

// pump reads from the server until the connection ends.
func (c *faultyConn) pump() {
	defer c.faults.forget(c)
	defer c.Conn.Close()
	var partial []byte
	buf := make([]byte, 16<<10)
	for {
		n, err := c.Conn.Read(buf)
		partial = append(partial, buf[:n]...)
		for {
			message, rest, ok := splitMessage(partial, true)
			if !ok {
				break
			}
			partial = rest
			if !c.receive(message) {
				return
			}
		}
		if err != nil {
			c.change(func() { c.readErr = firstErr(c.readErr, err) })
			return
		}
	}
}

// receive passes a message on, or throws it away; false says that the connection is broken.
func (c *faultyConn) receive(message []byte) bool {
	ready := message[0] == msgReadyForQuery
	c.mu.Lock()
	var rule *Fault
	if len(c.pending) > 0 {
		rule = c.pending[0]
		if ready {
			c.pending = c.pending[1:]
		}
	}
	c.mu.Unlock()
	if rule == nil {
		c.change(func() { c.inbound = append(c.inbound, message...) })
		return true
	}
	if ready {
		c.abort(errReset)
		close(rule.struck)
	}
	return !ready
}

// Read returns what the server sent, and nothing while all is frozen.
func (c *faultyConn) Read(b []byte) (int, error) {
	for {
		thawed := c.faults.frozen()
		c.mu.Lock()
		changed, deadline := c.changed, c.deadline
		switch {
		case c.closed:
			c.mu.Unlock()
			return 0, net.ErrClosed
		case expired(deadline):
			c.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case thawed == nil && len(c.inbound) > 0:
			n := copy(b, c.inbound)
			c.inbound = c.inbound[n:]
			c.mu.Unlock()
			return n, nil
		case thawed == nil && c.readErr != nil:
			err := c.readErr
			c.mu.Unlock()
			return 0, err
		}
		c.mu.Unlock()
		wait(changed, thawed, deadline)
	}
}

func expired(deadline time.Time) bool {
	return !deadline.IsZero() && !time.Now().Before(deadline)
}

// wait returns at a change, at the thaw where there is one to come, or at the deadline if there is
// one.
func wait(changed, thawed <-chan struct{}, deadline time.Time) {
	var over <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-changed:
	case <-thawed:
	case <-over:
	}
}

// Close closes the client's side. While all is frozen the server does not learn of it.
func (c *faultyConn) Close() error {
	c.change(func() { c.closed = true })
	if c.faults.frozen() != nil {
		return nil
	}
	return c.Conn.Close()
}

// abort breaks the connection on both sides. The client reads the error after what came before.
func (c *faultyConn) abort(err error) {
	c.change(func() { c.readErr = firstErr(c.readErr, err) })
	_ = c.Conn.Close()
}

// firstErr keeps the first error, which is the cause of those after it.
func firstErr(first, next error) error {
	if first != nil {
		return first
	}
	return next
}

// SetDeadline bounds reads, and what writes do to the server's side.
func (c *faultyConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline bounds the client's reads. The goroutine that reads from the server has none.
func (c *faultyConn) SetReadDeadline(t time.Time) error {
	c.change(func() { c.deadline = t })
	return nil
}

// state tells whether the client has closed its side, and whether the connection has ended.
func (c *faultyConn) state() (closed, broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed, c.readErr != nil
}

// change changes the state and wakes whoever waits for it.
func (c *faultyConn) change(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn()
	close(c.changed)
	c.changed = make(chan struct{})
}
