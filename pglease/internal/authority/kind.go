package authority

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Kind says what an error means for the statement that it ended.
type Kind int

const (
	// Unknown: the statement may have taken effect. Resolve it by identity.
	Unknown Kind = iota
	// Transient: it took no effect, and the same statement may succeed soon.
	Transient
	// Definitive: it took no effect, and trying again will not help by itself.
	Definitive
	// Conflict: it took no effect; try again at once (serialization failure, deadlock).
	Conflict
)

// String names the kind, for logs.
func (k Kind) String() string {
	return [...]string{"unknown", "transient", "definitive", "conflict"}[k]
}

// KindOf tells the kind by SQLSTATE, and for errors without one by whether anything was sent.
func KindOf(err error) Kind {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return kindOfState(pg.Code)
	}
	var unsent notSentError
	if errors.As(err, &unsent) {
		return Transient
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) || pgconn.SafeToRetry(err) {
		return Transient
	}
	return Unknown
}

// notSentError is of a statement for which no connection was to be had.
type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }

func kindOfState(code string) Kind {
	switch code {
	case "40001", "40P01":
		return Conflict
	case "40003": // statement_completion_unknown
		return Unknown
	case "57P01", "57P02": // the server or the backend was told to stop, perhaps while it committed
		return Unknown
	case "57014", // query_canceled: statement_timeout, or an operator; a CALL may have committed before, see ended
		"57P03", // cannot_connect_now: starting up
		"57P05", // idle_session_timeout
		"25P03", // idle_in_transaction_session_timeout
		"25006", // read_only_sql_transaction: a standby
		"55P03", // lock_not_available
		"55000", // object_not_in_prerequisite_state: recovery is in progress
		graceState:
		return Transient
	}
	switch {
	case strings.HasPrefix(code, "08"): // connection exception, from a pooler in between
		return Unknown
	case strings.HasPrefix(code, "53"), strings.HasPrefix(code, "58"): // resources, system error
		return Transient
	}
	return Definitive
}

// wrongServer tells that the connection leads to a server that takes no writes, now or soon.
func wrongServer(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code {
	case "25006", "57P01", "57P02", "57P03":
		return true
	}
	return false
}
