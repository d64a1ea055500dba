// Package authority speaks to the database that grants leases.
//
// Each step of the protocol is one guarded statement, one round trip. What the statement's zero
// rows mean is said at its text in queries/lease. The client above knows nothing of SQL; this
// package knows nothing of timers.
package authority

import (
	"context"
	"errors"
	"time"

	"github.com/pglease/pglease/pglease/fence"
)

// ID is a UUID that names a request.
type ID = [16]byte

// ErrStaleServer is of a server of an older generation than is known to the client.
var ErrStaleServer = errors.New("server of an older generation")

// Generation is the part of a fence that a failover or an adoption raises; below it are milliseconds.
func Generation(fence int64) int64 { return fence >> 41 }

// Request asks for a resource. The same request, sent again, gets the same lease.
type Request struct {
	Resource  string
	ID        ID
	Owner     string
	TTL       time.Duration
	LockDelay time.Duration // how long the resource stays free after an expiry of this lease
	Barging   bool          // do not mind those who wait in line
	Ticket    int64         // of a barging waiter: its place, which it leaves when granted; else 0
	Fresh     bool          // this request was never sent before, by anybody
}

// Outcome is how an acquire was answered.
type Outcome string

const (
	Granted  Outcome = "granted"  // now, by this statement
	Repeated Outcome = "repeated" // before, to this request, and its lease is current
	Spent    Outcome = "spent"    // before, to this request, and that lease is over
	Held     Outcome = "held"     // another owner has the resource
	Queued   Outcome = "queued"   // free, but others wait for it in line
	Joined   Outcome = "joined"   // in line; only Join answers so
	Full     Outcome = "full"     // too many wait already; only Join answers so
)

// Answer is the authority's answer to an acquire. Remaining was read by the database's clock after
// the request was sent, so the lease is valid for at least that long from the moment of sending.
// For Held it is what the holder has left, and Owner is the holder; both are zero where the
// holder's row could not be seen. Unconfirmed means that a synchronous standby should have confirmed
// the grant and that this connection cannot tell whether it did: the next Renew will.
type Answer struct {
	Outcome      Outcome
	Token        fence.Token
	Owner        string
	Remaining    time.Duration
	DatabaseTime time.Time
	Unconfirmed  bool
	Grace        bool  // Held, for all that is known: the server will grant nothing for Remaining
	Ticket       int64 // the place in line, for Joined
	Ahead        int   // how many were in line before, for Joined and Full
}

// Renewal is one renewed lease. Floor is the least fence that the server would grant now; Awaited tells
// that somebody waits for the resource.
type Renewal struct {
	Lease        fence.LeaseID
	Remaining    time.Duration
	DatabaseTime time.Time
	Floor        int64
	Awaited      bool
}

// How a tenure ended, as the history says it.
const (
	EndReleased = "released"
	EndExpired  = "expired"
	EndBroken   = "broken"
	EndUnknown  = ""      // history is off or pruned
	EndAlone    = "alone" // it did not end: the named successor does not wait
)

// End tells what became of a lease that a renewal did not touch. Current means that it lives on
// and its row was only locked. Taken means that the resource has been granted again since. Only
// Ends tells the DatabaseTime.
type End struct {
	Lease        fence.LeaseID
	Current      bool
	Ended        string
	Taken        bool
	By           string
	Reason       string
	DatabaseTime time.Time
}

// ReleaseRequest ends a lease.
type ReleaseRequest struct {
	Lease     fence.Token
	Successor string // serve only a waiter of this owner name; EndAlone tells that there is none and nothing was done
	Unawaited bool   // nobody is likely to wait: cheaper where it is true, and another round trip where not
	Client    ID     // whose own waiters need not be rung
}

// Authority is the database as the client sees it. Every method is one attempt, bounded by its
// context; Kind tells what a returned error means for the outcome.
type Authority interface {
	// Acquire makes one attempt and never waits for a holder.
	Acquire(ctx context.Context, r Request) (Answer, error)

	// Renew extends the given leases and returns those that it extended. It runs on a connection
	// of its own and is called by one goroutine at a time. A server of an older generation than the
	// given one is not believed: that is ErrStaleServer.
	Renew(ctx context.Context, leases []fence.Token, generation int64) ([]Renewal, error)

	// Ends asks what became of leases that Renew left out. Same connection as Renew.
	Ends(ctx context.Context, leases []fence.Token) ([]End, error)

	// Release ends exactly this lease and tells how it ended, now or, if it was over, before:
	// EndReleased may be an earlier release whose reply was lost. Where somebody waits it hands
	// the resource over in the same commit.
	Release(ctx context.Context, r ReleaseRequest) (End, Handover, error)

	// Abandon makes sure that the request holds nothing, does not wait, and is never granted later.
	Abandon(ctx context.Context, resource string, request ID) (Handover, error)

	Line

	// Close gives up the authority's own connections.
	Close(ctx context.Context)
}
