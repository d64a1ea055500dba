package authority

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/pglease/pglease/pglease/fence"
)

// Handover tells who is served next. The zero Handover: nobody was.
type Handover struct {
	Client    ID          // the waiting client, to be told
	Request   ID          // its request
	Ticket    int64       // its place in line; 0 in the zero Handover
	Token     fence.Token // the lease that it was granted; zero where it should only be told to try
	Remaining time.Duration

	Rung        bool // the waiter has been told, with the commit
	Sleeps      bool // the client's session may be asleep: see Awaited. What is only rung it would hear late
	Unconfirmed bool // as Answer's
}

// Ring tells a waiter to look. One with a Fence and a Proof tells it that it was served, and need not
// look: only who knows the id of the lease can prove it, and that is the waiting client's secret
// until it is granted.
type Ring struct {
	Ticket int64
	Fence  int64
	Proof  Proof

	Rouse bool // the session too, behind the ring. Nothing of it is sent
}

// Proof is made of a lease's id.
type Proof [16]byte

// Prove returns the proof of a lease's id.
func Prove(lease ID) (p Proof) {
	sum := sha256.Sum256(lease[:])
	copy(p[:], sum[:])
	return p
}

// RingOf tells the waiter that is served next. It is told of its grant unless that took a quarter of the lease's time
// to make and commit: who hears of a grant counts from when it last looked, which may lie between the two.
func RingOf(next Handover, took time.Duration) Ring {
	r := Ring{Ticket: next.Ticket, Rouse: next.Sleeps}
	if !next.Token.IsZero() && !next.Unconfirmed && took < next.Remaining/4 {
		r.Fence, r.Proof = next.Token.Fence(), Prove(next.Token.LeaseID())
	}
	return r
}

// JoinRequest asks for a place in line. It is Fresh where no join of the request was sent before, by anybody,
// and no acquire of it is under way.
type JoinRequest struct {
	Request
	Client     ID
	Lease      ID            // of the lease that it will be granted
	Patience   time.Duration // when to skip this waiter; 0: never
	MaxWaiting int           // answer Full where so many wait already
}

// Place is a waiter as Watch asks after it.
type Place struct {
	Resource string
	Ticket   int64
	Request  ID
}

// Standing is how a waiter stands. Remaining is of its own lease if it was granted, else what is
// left until the resource may be taken; not above zero where it may be now.
type Standing struct {
	Request   ID
	Granted   bool
	InLine    bool
	First     bool
	Token     fence.Token // for Granted
	Remaining time.Duration

	Unconfirmed bool // as Answer's, for Granted
}

// Description is what can be seen of a resource.
type Description struct {
	Found     bool
	Owner     string
	Token     fence.Token
	Since     time.Time
	Current   bool
	Remaining time.Duration
	Line      []Waiter
	MeanHold  time.Duration // of the last tenures; 0 where none is known
}

// Waiter is one in line.
type Waiter struct {
	Owner   string
	Request ID
	Waited  time.Duration
	Barging bool
	Alive   bool
}

// Line is the part of the authority that serves those who wait.
type Line interface {
	// Join grants at once, or takes the last place in line. Held tells that there is no row yet, or
	// that another try of the request was at it.
	Join(ctx context.Context, r JoinRequest) (Answer, error)

	// Leave gives a place up, and tells the lease that was granted meanwhile, if one was. Without a
	// ticket the request is also kept from joining later.
	Leave(ctx context.Context, p Place) (Standing, error)

	// Prune drops the dead of a line, and tells how many.
	Prune(ctx context.Context, resource string) (int, error)

	// Promote serves the line of a resource that is free or expired, if it is.
	Promote(ctx context.Context, resource string) (Handover, error)

	// Watch tells how waiters stand. Those whose resource has no row are left out.
	Watch(ctx context.Context, places []Place) ([]Standing, error)

	// Ghosts looks after leases that were handed to waiters a moment ago. Those that are over or were
	// renewed are left out; of the others it tells whether their client has died.
	Ghosts(ctx context.Context, handed []Handover) (gone map[fence.LeaseID]bool, err error)

	// Bury ends such a lease, if it still is one, and serves the line.
	Bury(ctx context.Context, handed Handover) (Handover, error)

	// Beat says that the client lives for another life, and by which session it can be told and seen to die.
	Beat(ctx context.Context, client ID, session Session, life time.Duration) error

	// Farewell says that the client waits for nothing any more.
	Farewell(ctx context.Context, client ID) error

	// Ring tells a client of one of its waiters. It may be lost: the waiter finds out by looking.
	Ring(ctx context.Context, client ID, ring Ring) error

	// Listen opens a session that hears rings for the client.
	Listen(ctx context.Context, client ID) (Listener, error)

	// Break ends another's lease for a person's reason, and serves the line. It tells whether the
	// lease was still current.
	Break(ctx context.Context, lease fence.Token, by, reason string) (broken bool, next Handover, err error)

	// Describe reads a resource and at most limit of those who wait for it.
	Describe(ctx context.Context, resource string, limit int) (Description, error)
}

// Listener hears rings. It is used by one goroutine.
type Listener interface {
	// Next waits for a ring. When the context ends first the listener may be used again, if the
	// error is the context's.
	Next(ctx context.Context) (Ring, error)

	// Lock takes an advisory lock that lives as long as the session. Through a transaction
	// pooler it would stay behind: take it only when rings are heard.
	Lock(ctx context.Context, key int64) error

	// Rousable makes the session one that others can rouse out of Await, and returns the server's process of it.
	// The error says why they could not.
	Rousable(ctx context.Context) (process int32, err error)

	// Await waits in the server for a grant. Rings are not heard meanwhile, but for those that rouse too.
	Await(ctx context.Context, a Awaited) (Awaiting, error)

	// Ping asks the session whether it lives.
	Ping(ctx context.Context) error

	Close(ctx context.Context)
}
