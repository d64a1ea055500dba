package fence

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// StaleState is the SQLSTATE with which the trigger of fence_table refuses a stale owner.
const StaleState = "PGF01"

// How a current token's command may still be refused: the second level of the rule. The command
// was not applied.
var (
	// ErrConflict: the resource is not at the version that the command expects.
	ErrConflict = errors.New("version conflict")

	// ErrOutOfOrder: the token's owner has sent a later command already.
	ErrOutOfOrder = errors.New("command out of order")
)

// What else a call may find.
var (
	// ErrNotFound: the resource has seen no token, or the table has no such row.
	ErrNotFound = errors.New("not found")

	// ErrInvalidOp: a field is out of its bounds. Nothing was sent.
	ErrInvalidOp = errors.New("invalid command")
)

// An Error tells which operation on which resource an error of this package belongs to. A database's
// error is in its chain as it came.
type Error struct {
	Op       string // "advance", "establish", "update", "watermark", "commands", "record", "rejections"
	Resource string
	Err      error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Resource == "" {
		return fmt.Sprintf("fence: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("fence: %s %q: %v", e.Op, e.Resource, e.Err)
}

// Unwrap returns the error below.
func (e *Error) Unwrap() error { return e.Err }

// IsStale tells whether err says that a protected resource refused a stale owner: it matches
// ErrStaleOwner, or is the error of the trigger that fence_table puts on a table, SQLSTATE PGF01.
func IsStale(err error) bool {
	if errors.Is(err, ErrStaleOwner) {
		return true
	}
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == StaleState
}

// A StaleError matches ErrStaleOwner: the resource has accepted a token that this one cannot
// follow, and the call changed nothing. Calling again cannot help; only a new lease can.
type StaleError struct {
	Resource string  // the resource; where a table's trigger refused: the key of the row
	Table    string  // the table whose trigger refused, with its schema; else empty
	Fence    int64   // the fence that was refused
	LeaseID  LeaseID // its lease; zero where the resource keeps none
	Owner    string  // what the owner of that lease called itself; may be empty

	GreatestFence   int64     // the greatest fence that the resource has accepted
	GreatestLeaseID LeaseID   // the lease which that fence belongs to; zero where the resource keeps none
	GreatestOwner   string    // what the owner of that lease called itself; may be empty
	Since           time.Time // when the resource accepted it, by the resource's clock; zero where it is not known

	rejection LeaseID // names the record of this refusal, so that it is kept once
}

// Error implements error.
func (e *StaleError) Error() string {
	owner := ""
	switch {
	case e.GreatestOwner != "":
		owner = " of " + e.GreatestOwner
	case e.GreatestLeaseID != LeaseID{}:
		owner = " of lease " + e.GreatestLeaseID.String()
	}
	if e.Fence == e.GreatestFence {
		return fmt.Sprintf("%v: fence %d is shared with that%s, which came first", ErrStaleOwner, e.Fence, owner)
	}
	return fmt.Sprintf("%v: fence %d is older than %d%s", ErrStaleOwner, e.Fence, e.GreatestFence, owner)
}

// Is matches ErrStaleOwner.
func (e *StaleError) Is(target error) bool { return target == ErrStaleOwner }

// AsStale returns what err says about a stale owner that was refused, from a StaleError in its
// chain or from the error of the trigger that fence_table puts on a table. It is nil where err says
// nothing of the kind, and of a database's error with this SQLSTATE that another made.
func AsStale(err error) *StaleError {
	var stale *StaleError
	if errors.As(err, &stale) {
		return stale
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != StaleState {
		return nil
	}
	var detail struct {
		Key             string `json:"key"`
		Fence           int64  `json:"fence"`
		LeaseID         string `json:"lease_id"`
		GreatestFence   int64  `json:"greatest_fence"`
		GreatestLeaseID string `json:"greatest_lease_id"`
	}
	if json.Unmarshal([]byte(pg.Detail), &detail) != nil {
		return nil
	}
	// A lease column may be empty, and a table need not have one: the id is then the zero one.
	lease, _ := parseLeaseID(detail.LeaseID)
	greatest, _ := parseLeaseID(detail.GreatestLeaseID)
	return &StaleError{
		Resource: detail.Key, Table: pg.SchemaName + "." + pg.TableName, Fence: detail.Fence, LeaseID: lease,
		GreatestFence: detail.GreatestFence, GreatestLeaseID: greatest, rejection: newID(),
	}
}

// A ConflictError matches ErrConflict.
type ConflictError struct {
	Expected int64 // the version that the command expected
	Actual   int64 // the version of the resource
}

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: expected version %d, the resource is at %d", ErrConflict, e.Expected, e.Actual)
}

// Is matches ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// An OrderError matches ErrOutOfOrder.
type OrderError struct {
	Sequence int64 // of the command that was refused
	Last     int64 // of the last command that was accepted under the same token
}

// Error implements error.
func (e *OrderError) Error() string {
	return fmt.Sprintf("%v: command %d came after command %d", ErrOutOfOrder, e.Sequence, e.Last)
}

// Is matches ErrOutOfOrder.
func (e *OrderError) Is(target error) bool { return target == ErrOutOfOrder }
