package reportstore

import (
	"errors"
	"fmt"

	"github.com/pglease/pglease/pglease/fence"
)

var (
	// ErrConflict says that the token is current and the report is not at the expected version.
	// The content was not changed; read the report and decide again. The chain holds a
	// *ConflictError. A stale owner is told so instead, by fence.ErrStaleOwner, whatever version it
	// expected.
	ErrConflict = errors.New("version conflict")

	// ErrNotFound says that nothing was ever published under the name, or no such version is kept.
	ErrNotFound = errors.New("report not found")

	// ErrInvalidReport says that a field is out of its bounds. Nothing was sent.
	ErrInvalidReport = errors.New("invalid report")
)

// An Error tells which operation on which report an error belongs to. Every error of a Store's
// methods is one. A database's error is in the chain as it came; after one, the write may have
// been applied or not, and the same call again finds out.
type Error struct {
	Op     string // "publish", "establish", "read", "history", "rejections", "watermark"
	Report string
	Err    error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("reportstore: %s %q: %v", e.Op, e.Report, e.Err) }

// Unwrap returns the error below.
func (e *Error) Unwrap() error { return e.Err }

// A StaleOwnerError matches fence.ErrStaleOwner: the report has accepted another owner's token that
// is newer than this one, and this call changed nothing. Calling again cannot help; only a new
// lease can.
//
// Where an earlier call with the same content ended without an answer, it may have been applied
// before the newer owner came: the history shows it.
type StaleOwnerError struct {
	Token           fence.Token   // the token that was refused
	GreatestFence   int64         // the greatest fence that the report has accepted
	GreatestLeaseID fence.LeaseID // the lease which that fence belongs to
	GreatestOwner   string        // what the owner of that lease called itself; may be empty
	Version         int64         // the report's version
}

// Error implements error.
func (e *StaleOwnerError) Error() string {
	owner := e.GreatestOwner
	if owner == "" {
		owner = "lease " + e.GreatestLeaseID.String()
	}
	if e.Token.Fence() == e.GreatestFence {
		return fmt.Sprintf("%v: fence %d is shared with %s, which came first", fence.ErrStaleOwner, e.GreatestFence, owner)
	}
	return fmt.Sprintf("%v: fence %d is older than %d of %s", fence.ErrStaleOwner, e.Token.Fence(), e.GreatestFence, owner)
}

// Is matches fence.ErrStaleOwner.
func (e *StaleOwnerError) Is(target error) bool { return target == fence.ErrStaleOwner }

// A ConflictError matches ErrConflict.
type ConflictError struct {
	Expected int64 // the Report's ExpectedVersion
	Actual   int64 // the report's version; 0 where nothing was published
}

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: expected version %d, the report is at %d", ErrConflict, e.Expected, e.Actual)
}

// Is matches ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }
