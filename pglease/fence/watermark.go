package fence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/pglease/fence/internal/fencedb"
)

// MaxOwnerLength is the longest name of an owner, in bytes.
const MaxOwnerLength = 256

// Default and bound of a Config's IdleTimeout.
const (
	DefaultIdleTimeout = 30 * time.Second
	MaxIdleTimeout     = 24 * time.Hour
)

// Config says where the watermarks are. The zero value of each field means its default.
type Config struct {
	// Schema is the Postgres schema that the migrations were put into. Default "pglease".
	Schema string

	// Owner names this process to people, in rejections and errors. It never decides anything, so
	// two processes may share it. At most 256 bytes. Default: none.
	Owner string

	// IdleTimeout is how long a transaction of Apply may send no statement, or take nothing of a result,
	// before Postgres ends it, because its process seems to have stopped. Where the session has a
	// shorter idle_in_transaction_session_timeout or tcp_user_timeout, that counts. At most 24 h.
	// Default: DefaultIdleTimeout.
	IdleTimeout time.Duration
}

// DB is what statements run on: a pgx pool, connection or transaction.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Watermarks are the greatest fences that resources have accepted, one row a resource in the table
// fence_watermark, which the line "fence" of the migrations makes. They may be in another database
// than the leases: what matters is that they are where the protected data is, so that both change
// in one transaction.
//
// Safe for concurrent use; holds nothing that needs closing. The zero value is of no use: call
// NewWatermarks.
type Watermarks struct {
	schema  *schema.Schema
	queries *fencedb.Queries
	owner   string
	idle    time.Duration
}

// NewWatermarks returns the watermarks of a schema. It sends nothing. The error tells all that is
// wrong with cfg.
func NewWatermarks(cfg Config) (*Watermarks, error) {
	s, err := schema.New(cfg.Schema)
	if err = errors.Join(err, checkOwner(cfg.Owner), checkIdle(cfg.IdleTimeout)); err != nil {
		return nil, &Error{Op: "new", Err: err}
	}
	return &Watermarks{
		schema: s, queries: fencedb.New(), owner: cfg.Owner, idle: cmp.Or(cfg.IdleTimeout, DefaultIdleTimeout),
	}, nil
}

// standard are the watermarks of the functions that take no Config.
var standard = func() *Watermarks {
	w, err := NewWatermarks(Config{})
	if err != nil {
		panic(err)
	}
	return w
}()

// A Watermark is the newest token that a resource has accepted, and whose it was.
type Watermark struct {
	Fence        int64
	LeaseID      LeaseID
	Owner        string    // may be empty
	Since        time.Time // when it was accepted first, by the database's clock
	Version      int64     // how many commands the resource has accepted, of all owners
	LastSequence int64     // the greatest Sequence accepted under this fence, 0 if none had one
}

// Watermark reads a resource's watermark. The error matches ErrNotFound where it has seen no token.
// Read it in the transaction that also reads the data, at REPEATABLE READ, and its Version may serve
// as the ExpectedVersion of what is based on them.
func (w *Watermarks) Watermark(ctx context.Context, db DB, resource string) (Watermark, error) {
	row, err := w.queries.Watermark(ctx, w.schema.On(db), resource)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return Watermark{}, &Error{Op: "watermark", Resource: resource, Err: err}
	}
	return Watermark{
		Fence: row.Fence, LeaseID: row.LeaseID.Bytes, Owner: row.OwnerID, Since: row.EstablishedAt,
		Version: row.Version, LastSequence: row.LastSequence,
	}, nil
}

// checkToken refuses what no statement should carry.
func checkToken(token Token) error {
	if token.IsZero() {
		return fmt.Errorf("%w: it is the zero token", ErrInvalidToken)
	}
	return nil
}

func checkOwner(owner string) error {
	switch {
	case len(owner) > MaxOwnerLength:
		return fmt.Errorf("%w: the owner's name has %d bytes, the limit is %d", ErrInvalidOp, len(owner), MaxOwnerLength)
	case !isText(owner):
		return fmt.Errorf("%w: the owner's name %q is not text", ErrInvalidOp, owner)
	}
	return nil
}

func checkIdle(timeout time.Duration) error {
	if timeout < 0 || timeout > MaxIdleTimeout {
		return fmt.Errorf("IdleTimeout %v is not between 0 and %v", timeout, MaxIdleTimeout)
	}
	return nil
}

// isText tells whether Postgres can hold it as text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// uuid is an id as the generated code takes it; the zero id is NULL.
func uuid(id LeaseID) pgtype.UUID {
	return pgtype.UUID{Bytes: id, Valid: id != LeaseID{}}
}
