package pglease

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
)

// What a call may return, by situation. "Held" only ever means held: while the outcome of a
// request is not known, the error says that, and never that another has the resource.
var (
	// ErrHeld: another owner has the resource, seen in the database, or may have it by a lease that a
	// failover lost, which a HeldError tells. The caller has nothing.
	ErrHeld = errors.New("held by another owner")

	// ErrLost: the lease is over, for ever, without having been released by this handle. Another
	// owner may have the resource. The chain also holds one of the causes below.
	ErrLost = errors.New("lease lost")

	// ErrReleased: the lease is over because it was released by this handle. As the cause of a
	// loss: by another handle of the same lease, see WithRequestID.
	ErrReleased = errors.New("lease released")

	// ErrNotAdmitted: too little trust is left to begin the unit of work. The lease is not lost.
	ErrNotAdmitted = errors.New("too little of the lease is left")

	// ErrUnknownOutcome: the request may have been granted, or may have a place in line. Of the calls
	// to acquire, only one with WithRequestID returns it; calling again with the same id resolves
	// it. Otherwise a lease that it was granted ends with its TTL. GuardedTx returns it for a commit
	// whose reply was lost.
	ErrUnknownOutcome = errors.New("outcome unknown")

	// ErrRequestSpent: this request id was granted before and that lease is over, or the request
	// was given up. The caller has nothing; a new request is needed.
	ErrRequestSpent = errors.New("request id is spent")

	// ErrStaleServer: the server that answered grants lower fences than this client has seen: an
	// old primary that came back. Its grant was refused and given up; the caller has nothing. Its
	// renewals are not believed either.
	ErrStaleServer = authority.ErrStaleServer

	// ErrQueueFull: as many wait as may, for the resource (Config.MaxWaiters) or in this client
	// (Config.MaxWaiting). The caller has nothing and is not in line.
	ErrQueueFull = errors.New("too many wait")

	// ErrNotHeld: the lease that was to be broken is over already. Nothing was changed.
	ErrNotHeld = errors.New("not held any more")

	// ErrNoSuccessor: nobody of the given name waits for the resource. The lease is kept.
	ErrNoSuccessor = errors.New("no such waiter")

	// ErrClosed: the client is closed or closing. The caller has nothing.
	ErrClosed = errors.New("client is closed")

	// ErrTooManyLeases: Config.MaxLeases are held or asked for. Nothing was sent.
	ErrTooManyLeases = errors.New("too many leases")

	// ErrTooManyAcquires: Config.MaxAcquires calls are under way. Nothing was sent.
	ErrTooManyAcquires = errors.New("too many acquires under way")

	// ErrSchema: the database lacks migrations that this library needs.
	ErrSchema = errors.New("database schema does not fit")

	// ErrInvalidConfig: a Config or an option is out of its bounds. Nothing was sent.
	ErrInvalidConfig = errors.New("invalid configuration")

	// ErrInvalidResource: the name cannot be a resource's. Nothing was sent.
	ErrInvalidResource = fence.ErrInvalidResource
)

// Causes of a loss; an error that matches ErrLost matches one of these too.
var (
	// ErrExpired: the trust ran out before a renewal was confirmed, or the database said that the
	// lease had expired.
	ErrExpired = errors.New("expired")

	// ErrUnreachable: the trust ran out while the database could not be reached.
	ErrUnreachable = errors.New("database unreachable")

	// ErrTakenOver: the database has granted the resource to another owner.
	ErrTakenOver = errors.New("taken over")

	// ErrBroken: an operator ended the lease. The LostError tells who and why.
	ErrBroken = errors.New("broken by an operator")

	// ErrMaxHold: the lease was held for Config.MaxHold and is no longer renewed.
	ErrMaxHold = errors.New("held for longer than allowed")
)

// An Error tells which operation on which resource an error belongs to.
type Error struct {
	Op       string // "acquire", "release", "renew", "do", "close"
	Resource string
	Err      error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Resource == "" {
		return fmt.Sprintf("pglease: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("pglease: %s %s: %v", e.Op, shorten(e.Resource), e.Err)
}

// shorten quotes a name, and cuts one that is very long.
func shorten(name string) string {
	const most = 120
	if len(name) <= most {
		return strconv.Quote(name)
	}
	return strconv.Quote(name[:most]) + "…"
}

// Unwrap returns the error below.
func (e *Error) Unwrap() error { return e.Err }

// A HeldError matches ErrHeld and says what was seen of the holder.
type HeldError struct {
	Owner     string        // the holder's Config.Owner; empty where its row could not be seen
	Remaining time.Duration // what its lease had left, by the database's clock

	// Grace: nobody is seen to have the resource, and it is not granted while a lease that a failover
	// lost may still be held: for Remaining. See the failover grace in docs/operations.md.
	Grace bool
}

// Error implements error.
func (e *HeldError) Error() string {
	if e.Grace {
		return fmt.Sprintf("%v, perhaps: nothing is granted for another %v after a failover", ErrHeld, e.Remaining.Round(time.Millisecond))
	}
	if e.Owner == "" {
		return ErrHeld.Error() + ", or being granted just now"
	}
	return fmt.Sprintf("%v: %s, %v left", ErrHeld, e.Owner, e.Remaining.Round(time.Millisecond))
}

// Is matches ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// An openError is why the outcome of a request is not known. Whatever was seen of a holder does not match
// any more: the request itself may be the holder by now.
type openError struct{ err error }

func (e openError) Error() string { return e.err.Error() }

func (e openError) Is(target error) bool { return target != ErrHeld && errors.Is(e.err, target) }

func (e openError) As(target any) bool {
	_, held := target.(**HeldError)
	return !held && errors.As(e.err, target)
}

// A LostError matches ErrLost and its Cause.
type LostError struct {
	Cause  error  // ErrExpired, ErrUnreachable, ErrTakenOver, ErrBroken, ErrMaxHold, ErrReleased or ErrClosed
	By     string // who broke the lease
	Reason string // why they did
	Last   error  // why the last renewal failed, where the trust ran out; may be nil
}

// Error implements error.
func (e *LostError) Error() string {
	text := fmt.Sprintf("%v: %v", ErrLost, e.Cause)
	if e.By != "" || e.Reason != "" {
		text += fmt.Sprintf(" (%s: %s)", e.By, e.Reason)
	}
	if e.Last != nil {
		text += ": " + e.Last.Error()
	}
	return text
}

// Is matches ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the cause and the last failure.
func (e *LostError) Unwrap() []error {
	if e.Last == nil {
		return []error{e.Cause}
	}
	return []error{e.Cause, e.Last}
}
