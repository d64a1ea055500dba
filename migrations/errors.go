package migrations

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrDirty reports that the version table says "dirty". This package never writes that: another
// tool worked on our table and stopped half way. A person has to look at what it left and then
// say where the line stands, with "pglease migrate force".
var ErrDirty = errors.New("another tool left this version half applied")

// ErrNewer reports that the database has a version that this program does not know, so it cannot
// revert it.
var ErrNewer = errors.New("the database is newer than this program")

// ErrOvertaken reports that another migrator moved the line after Down was called and before it had
// its turn. Nothing was reverted: what is there now is not what was to be destroyed.
var ErrOvertaken = errors.New("another migrator moved the line meanwhile")

// An Error is what stopped a migrator. The line stands where it stood before the migration that
// is named here, with one exception: when the connection was lost during a commit, it may be
// applied. Repeating the call is safe in every case.
type Error struct {
	Op        string // "up", "down", "version", "force" or "adopt"
	Line      Line
	Version   uint   // of the migration at work; 0 before the first
	Name      string // of that migration
	Statement string // that was refused, if known
	Hint      string // what to do, if known
	Err       error
}

// Error returns one line. The whole statement is in the field.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "migrate %s %s", e.Line, e.Op)
	if e.Version > 0 {
		fmt.Fprintf(&b, ": version %d", e.Version)
		if e.Name != "" {
			fmt.Fprintf(&b, " (%s)", e.Name)
		}
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Statement != "" {
		first, _, more := strings.Cut(e.Statement, "\n")
		fmt.Fprintf(&b, ": in statement: %s", first)
		if more {
			b.WriteString(" ...")
		}
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, ": %s", e.Hint)
	}
	return b.String()
}

// Unwrap returns Err, which has the *pgconn.PgError or the error of the context in its chain.
func (e *Error) Unwrap() error { return e.Err }

// SQLSTATE codes.
const (
	undefinedTable     = "42P01" // also where its schema is undefined
	duplicateTable     = "42P07"
	duplicateColumn    = "42701"
	duplicateFunction  = "42723"
	duplicateObject    = "42710"
	duplicateSchema    = "42P06"
	uniqueViolation    = "23505"
	serialization      = "40001"
	deadlock           = "40P01"
	dependentsExist    = "2BP01"
	insufficientRights = "42501"
)

func code(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// explain makes the error that the caller sees.
func (m *Migrator) explain(op string, line Line, at Migration, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Line: line, Version: at.Version, Name: at.Name, Err: err}
	var refused *statementError
	if errors.As(err, &refused) {
		e.Statement, e.Err = refused.statement, refused.err
	}
	switch {
	case errors.Is(err, ErrDirty):
		e.Hint = fmt.Sprintf("look at the tables, then run: pglease migrate force%s %d", m.flags(line), at.Version)
	case errors.Is(err, ErrOvertaken):
		e.Hint = "nothing was reverted; look at what is there now, and run it again"
	case errors.Is(err, ErrNewer):
		e.Hint = "use the program that applied it"
	}
	return e
}

// flags are those that lead the command line to the same line and schema.
func (m *Migrator) flags(line Line) string {
	flags := ""
	if line != Lease {
		flags += " --line " + string(line)
	}
	if name := m.schema.Name(); name != DefaultSchema {
		flags += " --schema '" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	}
	return flags
}
