package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier is what Swap runs on; pgx's pool, connection and transaction have it.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// States says where a table of the caller's own keeps the states of its rows. The names are
// quoted, so they are as the catalogue has them.
type States struct {
	Table pgx.Identifier // as in {"billing", "invoice"}
	ID    string         // the column that names a row. Default "id"
	State string         // the column with the state, of a text type. Default "state"
}

// Swap moves one row from one state to another, if it is in that state:
//
//	UPDATE invoice SET state = 'paid' WHERE id = 4711 AND state = 'open'
//
// Of any number of rivals one does it; the row is both the work and its arbiter, and no lock is
// held before or after. The error matches ErrNotInState, and holds a *StateError with the state
// that was seen, where the row is in another state; and ErrGone where there is no such row. Neither
// ends the caller's transaction. Above READ COMMITTED a rival may do so by a serialization failure.
//
// It is at home where a step is short and is over with the UPDATE. Work that takes time and whose
// owner may die needs somebody who notices: a job, or a lease.
func (s States) Swap(ctx context.Context, db Querier, id any, from, to string) error {
	name := fmt.Sprint(id)
	if err := errors.Join(s.check(), checkState(from), checkState(to)); err != nil {
		return wrap("swap", name, 0, err)
	}
	table, idColumn, stateColumn := s.Table.Sanitize(), column(s.ID, "id"), column(s.State, "state")
	update := fmt.Sprintf("UPDATE %[1]s SET %[3]s = $3 WHERE %[2]s = $1 AND %[3]s = $2", table, idColumn, stateColumn)
	read := fmt.Sprintf("SELECT coalesce(%[3]s::text, '') FROM %[1]s WHERE %[2]s = $1", table, idColumn, stateColumn)
	for range tries {
		tag, err := db.Exec(ctx, update, id, from, to)
		if err != nil || tag.RowsAffected() > 0 {
			return wrap("swap", name, 0, err)
		}
		// A statement of its own: the UPDATE may have waited for a rival that its snapshot lacks.
		var actual string
		err = db.QueryRow(ctx, read, id).Scan(&actual)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return wrap("swap", name, 0, ErrGone)
		case err != nil:
			return wrap("swap", name, 0, err)
		case actual != from: // else a rival has moved it back meanwhile
			return wrap("swap", name, 0, &StateError{ID: name, Want: fmt.Sprintf("%q", from), Actual: actual})
		}
	}
	return wrap("swap", name, 0, errRivals)
}

func (s States) check() error {
	if len(s.Table) == 0 {
		return fmt.Errorf("%w: the table has no name", ErrInvalidConfig)
	}
	for _, name := range append([]string{s.ID, s.State}, s.Table...) {
		if !isText(name) {
			return fmt.Errorf("%w: %q is no name", ErrInvalidConfig, name)
		}
	}
	return nil
}

func checkState(state string) error {
	if !isText(state) {
		return fmt.Errorf("%w: the state %q is not valid UTF-8 without NUL", ErrInvalidConfig, state)
	}
	return nil
}

func isText(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

func column(name, fallback string) string { return pgx.Identifier{or(name, fallback)}.Sanitize() }
