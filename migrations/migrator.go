package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/schema"
)

// A Migrator applies migrations in one schema. It is safe for concurrent use.
type Migrator struct {
	schema *schema.Schema
}

// A State says where a line stands.
type State struct {
	Version uint // that the database has; 0 is none
	Dirty   bool // another tool stopped half way in Version, see [ErrDirty]
	Latest  uint // that this program knows
}

// A Result says what a migrator did. With nothing in Applied there was nothing to do.
type Result struct {
	From, To uint        // versions before and after; 0 is none
	Applied  []Migration // in the order in which they were applied, or reverted
	Adopted  bool        // fences were raised for another server, see [Migrator.Adopt]
}

// New returns a migrator for a schema; the empty name means [DefaultSchema]. The name is at most
// 60 bytes long and is written without quotes; it may contain anything but "$$".
func New(schemaName string) (*Migrator, error) {
	s, err := newSchema(schemaName)
	if err != nil {
		return nil, err
	}
	return &Migrator{schema: s}, nil
}

// Up applies what is missing of a line, each migration in a transaction of its own, and makes the
// schema if it is missing. A database that is newer than this program is left as it is, so that
// an older release can start beside a newer one. Up of [Lease] and of [Jobs] also does
// what [Migrator.Adopt] does for that line.
//
// It works on a connection of its own, opened with the configuration of the pool. Where there is
// nothing to do it needs no right but to read. Errors are of type *[Error]; what Result lists is
// applied even then.
func (m *Migrator) Up(ctx context.Context, pool *pgxpool.Pool, line Line) (Result, error) {
	return m.climb(ctx, pool, line)
}

// Down reverts all of a line in one transaction and destroys its data. It drops the version table
// too, and the schema if Up made it and nothing else is in it.
//
// It destroys what is there when it is called, and nothing that was made later: where another
// migrator moves the line while Down waits for its turn, nothing is reverted and the error matches
// [ErrOvertaken], unless the line is gone anyway. Errors are of type *[Error], and match [ErrNewer]
// where the database has a version that this program does not know. After an error nothing is
// reverted.
func (m *Migrator) Down(ctx context.Context, pool *pgxpool.Pool, line Line) (Result, error) {
	return m.descend(ctx, pool, line)
}

// Version tells which version of a line the database has. It only reads, through the pool, and
// waits for nobody. A missing schema is version 0.
func (m *Migrator) Version(ctx context.Context, pool *pgxpool.Pool, line Line) (State, error) {
	all, err := All(line, m.schema.Name())
	if err != nil {
		return State{}, m.explain("version", line, Migration{}, err)
	}
	state := State{Latest: all[len(all)-1].Version}
	query := "SELECT version, dirty FROM " + m.table(line) + " LIMIT 1"
	err = pool.QueryRow(ctx, query).Scan(&state.Version, &state.Dirty)
	if errors.Is(err, pgx.ErrNoRows) || code(err) == undefinedTable {
		err = nil
	}
	return state, m.explain("version", line, Migration{}, err)
}

// Force records that a line stands at a version, 0 for none, and runs nothing. It is for a person
// who has looked: after another tool left the line dirty, or to take over from one that applied
// the same SQL.
func (m *Migrator) Force(ctx context.Context, pool *pgxpool.Pool, line Line, version uint) error {
	return m.explain("force", line, Migration{Version: version}, m.force(ctx, pool, line, version))
}

func (m *Migrator) force(ctx context.Context, pool *pgxpool.Pool, line Line, version uint) error {
	all, err := All(line, m.schema.Name())
	if err != nil {
		return err
	}
	recorded := database.NilVersion
	if version != 0 {
		i, known := find(all, version)
		if !known {
			return fmt.Errorf("there is no such version, the last one is %d", all[len(all)-1].Version)
		}
		recorded = int(all[i].Version)
	}
	conn, err := connect(ctx, pool)
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn)
	return m.locked(ctx, conn, func(tx pgx.Tx) error {
		if err := m.prepare(ctx, tx, line); err != nil {
			return err
		}
		d := &driver{ctx, tx, m.table(line)}
		return d.SetVersion(recorded, false)
	})
}
