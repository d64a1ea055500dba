package peers

import (
	"context"
	"time"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
)

// Options say what sessions are wanted.
type Options struct {
	Address string        // of the server
	N       int           // how many sessions
	Apart   bool          // each as in a process of its own; else all in one
	TTL     time.Duration // after how long without a sign of life a lock is free
	Hold    bool          // locks are held for long: what does not renew by itself is to be renewed
	Count   *measure.Counter
}

// A Session may hold locks, one at a time.
type Session interface {
	// Acquire takes the lock, or where wait is set waits for it.
	Acquire(ctx context.Context, key string, wait bool) (release func(context.Context) error, err error)
}

// A Crowd is the sessions that were asked for. Close ends them.
type Crowd struct {
	Sessions []Session
	Close    func()
}

// Renewals is how a peer keeps so many locks of one process alive.
type Renewals struct {
	Load  measure.Load
	Close func()
}

// A Peer is one that lends locks.
type Peer struct {
	Name   string // short, for flags and tables
	Title  string
	Server string // a kind of package servers
	Facts  Facts

	// Prepare makes what sessions need on the server; may be nil.
	Prepare func(ctx context.Context, address string) error
	// Open returns sessions; nil where the peer has no locks by name that a program may take.
	Open func(context.Context, Options) (Crowd, error)
	// Leader returns sessions that may only wait to become the leader; used where Open is nil.
	Leader func(context.Context, Options) (Crowd, error)
	// Renew returns what renews N locks; nil where a program has no call for it.
	Renew func(context.Context, Options) (Renewals, error)
	// OnlyHandOvers tells that it is a way to wait, and the rest is as with the peer before it.
	OnlyHandOvers bool
	// LooksByTTL tells that a waiter asks once in the TTL and not more often.
	LooksByTTL bool
	// LeaderTTL is that of Leader, which cannot be chosen.
	LeaderTTL time.Duration
}

// Facts are what a table needs to be fair.
type Facts struct {
	Fence    string // the number that grows with each grant, and who checks it
	Order    string // who is next
	Wakes    string // how a waiter learns of it
	Durable  string // what survives a crash of the server
	Renews   string // what one renewal keeps alive
	Lacks    string // what it does not do
	InOrder  bool   // waiters are served in the order in which they came
	Packages string // the module that was used
}

// All returns the peers, ourselves first.
func All() []Peer {
	return []Peer{pgleaseHistory(), pgleaseDirect(), pgleasePlain(), etcdPeer(), zookeeperPeer(), redsyncPeer(), pglockPeer(), advisoryPeer(), riverPeer()}
}

// ByName finds one.
func ByName(name string) (Peer, bool) {
	for _, p := range All() {
		if p.Name == name {
			return p, true
		}
	}
	return Peer{}, false
}

// Servers lists the kinds of servers that the peers need, Postgres first.
func Servers(list []Peer) []string {
	kinds := []string{servers.Postgres}
	for _, kind := range []string{servers.Etcd, servers.ZooKeeper, servers.Redis} {
		for _, p := range list {
			if p.Server == kind {
				kinds = append(kinds, kind)
				break
			}
		}
	}
	return kinds
}

// closers are called in the opposite order.
type closers []func()

func (c *closers) add(f func()) { *c = append(*c, f) }

func (c closers) close() {
	for i := len(c) - 1; i >= 0; i-- {
		c[i]()
	}
}
