package reportstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglease/pglease/internal/schema"
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

	// ErrInvalidRun says the same of what describes a run.
	ErrInvalidRun = errors.New("invalid run")

	// ErrSchema says that the tables are not there, or not all of them, in the schema that the Config
	// names. The text names the command that makes them. Nothing was written, and a call within a
	// transaction has ended that transaction.
	ErrSchema = errors.New("database schema does not fit")
)

// An Error tells which operation on which report an error belongs to. Every error of a Store's
// methods is one. A database's error is in the chain as it came; after one, the write may have
// been applied or not, and the same call again finds out.
type Error struct {
	Op     string // "publish", "establish", "read", "history", "rejections", "watermark", "start run", ...
	Report string
	Err    error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("reportstore: %s %q: %v", e.Op, e.Report, e.Err) }

// Unwrap returns the error below.
func (e *Error) Unwrap() error { return e.Err }

// wrap gives err its context. A missing table becomes ErrSchema.
func (s *Store) wrap(op, report string, err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000") { // undefined table, schema
		err = fmt.Errorf("%w; run: pglease migrate up --line report%s: %w", ErrSchema, s.schemaFlag(), err)
	}
	return &Error{Op: op, Report: report, Err: err}
}

// schemaFlag is what leads the operator's tool to the same schema, quoted for a shell.
func (s *Store) schemaFlag() string {
	if s.schema.Name() == schema.Default {
		return ""
	}
	return " --schema '" + strings.ReplaceAll(s.schema.Name(), "'", `'\''`) + "'"
}

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

// Unwrap says the same in the words of package fence, for fence.AsStale.
func (e *StaleOwnerError) Unwrap() error {
	return &fence.StaleError{
		Resource: e.Token.Resource(), Fence: e.Token.Fence(), LeaseID: e.Token.LeaseID(),
		GreatestFence: e.GreatestFence, GreatestLeaseID: e.GreatestLeaseID, GreatestOwner: e.GreatestOwner,
	}
}

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
