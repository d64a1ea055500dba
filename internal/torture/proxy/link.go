package proxy

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Target is the address of a server, which a failover changes.
type Target struct{ address atomic.Pointer[string] }

// Set leads new connections there.
func (t *Target) Set(address string) { t.address.Store(&address) }

// Kind is what befalls a statement.
type Kind string

const (
	LoseRequest Kind = "lost_request" // it does not arrive, and the connection breaks
	LoseReply   Kind = "lost_reply"   // it is executed, the answer is thrown away, and the connection breaks
	Delay       Kind = "delayed"      // it arrives late, whether or not the client still waits
	Copy        Kind = "duplicated"   // it arrives, and a copy of it goes to Rule.Copied
)

// A Rule waits for one statement and strikes once.
type Rule struct {
	Kind   Kind
	Match  func(name string) bool // of the statement's name
	Wait   time.Duration          // of Delay
	Struck func(detail string)    // told once it has
	Copied func(Statement)        // of Copy
}

// A Link is the way of one process to one server. It is safe for concurrent use.
type Link struct {
	listener net.Listener
	target   *Target
	rewrite  func(string) string
	ended    chan struct{}
	joined   sync.WaitGroup

	mu     sync.Mutex
	rules  []*Rule
	rows   map[string]func([][]byte)
	conns  map[*conn]struct{}
	thawed chan struct{} // not nil while silent
	spread time.Duration // after the thaw, how long what was queued may take to come
	lag    time.Duration // how long each group may take
	closed bool
}

// Open listens on a free loopback port. The function rewrite, which may be nil, changes the SQL of
// statements on their way. Close the Link.
func Open(target *Target, rewrite func(string) string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		return nil, err
	}
	l := &Link{listener: listener, target: target, rewrite: rewrite, ended: make(chan struct{}), conns: map[*conn]struct{}{}, rows: map[string]func([][]byte){}}
	l.joined.Go(l.accept)
	return l, nil
}

// Address is where the process is to connect.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Close breaks every connection and joins what runs.
func (l *Link) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	close(l.ended)
	err := l.listener.Close()
	l.Break()
	l.joined.Wait()
	return err
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.joined.Go(func() { l.serve(client) })
	}
}

func (l *Link) serve(client net.Conn) {
	defer client.Close()
	if !l.pass() {
		return
	}
	address := l.target.address.Load()
	if address == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", *address)
	if err != nil {
		return // to the client it looks as if the server had ended
	}
	c := newConn(l, client, server)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		c.end()
		return
	}
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	c.run()
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
}

// Arm adds a rule. It waits until its statement comes.
func (l *Link) Arm(r *Rule) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules = append(l.rules, r)
}

// Disarm drops the rules that have not struck.
func (l *Link) Disarm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules = nil
}

// Rows has told called with each row that the server answers the statement of that name with, whether or not the
// answer arrives. The values are only to be looked at before it returns.
func (l *Link) Rows(statement string, told func(values [][]byte)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows[statement] = told
}

// reader returns who is told of the rows that the group is answered with. Where it has several statements nobody is:
// they could be any's.
func (l *Link) reader(g group) func([][]byte) {
	if len(g.statements) != 1 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rows[g.statements[0].Name()]
}

// take removes and returns the first rule that one of the statements matches, and that statement.
func (l *Link) take(g group) (*Rule, Statement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range l.rules {
		for _, s := range g.statements {
			if r.Match(s.Name()) {
				l.rules = slices.Delete(l.rules, i, i+1)
				return r, s
			}
		}
	}
	return nil, Statement{}
}

// Silence keeps everything back, in both directions and with no error, until Thaw.
func (l *Link) Silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.thawed == nil {
		l.thawed = make(chan struct{})
	}
}

// Thaw delivers what was kept back, each connection's after a wait of its own of at most spread, so
// that what one queued first may come last.
func (l *Link) Thaw(spread time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spread = spread
	if l.thawed != nil {
		close(l.thawed)
		l.thawed = nil
	}
}

// Lag makes each group take up to d; zero ends that.
func (l *Link) Lag(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag = d
}

// Break ends all connections.
func (l *Link) Break() {
	l.mu.Lock()
	conns := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		c.end()
	}
}

// pass returns when the network is not silent; false says that the link was closed.
func (l *Link) pass() bool {
	l.mu.Lock()
	thawed, lag := l.thawed, l.lag
	l.mu.Unlock()
	if thawed == nil {
		return lag == 0 || l.sleep(rand.N(lag))
	}
	select {
	case <-thawed:
	case <-l.ended:
		return false
	}
	l.mu.Lock()
	spread := l.spread
	l.mu.Unlock()
	return spread == 0 || l.sleep(rand.N(spread))
}

func (l *Link) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ended:
		return false
	}
}
