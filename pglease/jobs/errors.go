package jobs

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglease/pglease/pglease/fence"
)

var (
	// ErrStaleClaim says that the claim is over. Its time ran out and the job went to another attempt, or it
	// was ended before. Nothing was changed; calling again cannot help. The chain holds a
	// *StaleClaimError, which matches fence.ErrStaleOwner too.
	ErrStaleClaim = errors.New("stale claim")

	// ErrNotInState says that the row is there, in another state than the step begins with. Nothing was
	// changed. The chain holds a *StateError with the state that was seen.
	ErrNotInState = errors.New("not in that state")

	// ErrGone says that there is no such row, or no more.
	ErrGone = errors.New("gone")

	// ErrInvalidJob says that a field is out of its bounds. Nothing was sent.
	ErrInvalidJob = errors.New("invalid job")

	// ErrInvalidMessage says the same of a message for an outbox.
	ErrInvalidMessage = errors.New("invalid message")

	// ErrInvalidKey says the same of an idempotency key.
	ErrInvalidKey = errors.New("invalid key")

	// ErrInvalidConfig says that a Config is out of its bounds. Nothing was sent.
	ErrInvalidConfig = errors.New("invalid configuration")

	// ErrSchema says that the database lacks the migrations of line jobs.
	ErrSchema = errors.New("database schema does not fit; run: pglease migrate up --line jobs")

	// ErrStopping is the cause with which a worker cancels the contexts of handlers that have not
	// returned Config.StopTimeout after it was told to stop.
	ErrStopping = errors.New("worker is stopping")

	// ErrUnconfirmed is the cause with which a worker cancels a handler's context when its claim's
	// time ran out before a heartbeat was confirmed. Another worker may have the job.
	ErrUnconfirmed = errors.New("claim was not confirmed in time")
)

// An Error tells which operation an error belongs to, and on what. A database's error is in the
// chain as it came; after one, the step may have been taken or not.
type Error struct {
	Op   string // "enqueue", "claim", "complete", ...
	Name string // a queue, a key or an outbox; may be empty
	ID   int64  // a job's; 0 where the operation is not on one job
	Err  error
}

// Error implements error.
func (e *Error) Error() string {
	text := "jobs: " + e.Op
	if e.Name != "" {
		text += " " + strconv.Quote(e.Name)
	}
	if e.ID != 0 {
		text += " job " + strconv.FormatInt(e.ID, 10)
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns the error below.
func (e *Error) Unwrap() error { return e.Err }

// wrap gives err its context. A missing table becomes ErrSchema.
func wrap(op, name string, id int64, err error) error {
	if err == nil {
		return nil
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000") {
		err = fmt.Errorf("%w: %w", ErrSchema, err)
	}
	return &Error{Op: op, Name: name, ID: id, Err: err}
}

// A StaleClaimError matches ErrStaleClaim and fence.ErrStaleOwner, and says what is known of the job.
type StaleClaimError struct {
	ID      int64  // the job
	Attempt int    // of the stale claim
	Fence   int64  // of the stale claim
	State   State  // the job's; empty where it is gone
	Current int64  // the fence of the job's last claim; the same as Fence where nobody has claimed it since
	Worker  string // what the worker of that claim called itself
}

// Error implements error.
func (e *StaleClaimError) Error() string {
	text := fmt.Sprintf("%v: attempt %d of job %d", ErrStaleClaim, e.Attempt, e.ID)
	switch {
	case e.State == "":
		return text + ": the job is gone"
	case e.Current > e.Fence:
		return fmt.Sprintf("%s: fence %d is older than %d of %s, the job is %s", text, e.Fence, e.Current, e.Worker, e.State)
	}
	return fmt.Sprintf("%s is over, the job is %s", text, e.State)
}

// Is matches ErrStaleClaim and fence.ErrStaleOwner.
func (e *StaleClaimError) Is(target error) bool {
	return target == ErrStaleClaim || target == fence.ErrStaleOwner
}

// A StateError matches ErrNotInState.
type StateError struct {
	ID     string // the row
	Want   string // the state, or the states, that the step begins with
	Actual string // the state that was seen
}

// Error implements error.
func (e *StateError) Error() string {
	return fmt.Sprintf("%v: %s is %q, not %s", ErrNotInState, e.ID, e.Actual, e.Want)
}

// Is matches ErrNotInState.
func (e *StateError) Is(target error) bool { return target == ErrNotInState }
