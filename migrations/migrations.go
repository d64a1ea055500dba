// Package migrations holds the tables of pglease as SQL and applies them.
//
// There is one line of migrations for each part, so that a service which only wants leases never
// gets the tables of another part. Each line keeps its version in a table of its own inside our
// schema, "pglease".migrations_lease for the line lease. A service that uses golang-migrate for
// its own tables therefore never meets ours.
//
// # What a migrator promises
//
// A version and the tables that belong to it are written in one transaction, and that transaction
// holds an advisory lock. So any number of migrators may run at once: one works, the others wait
// and then find nothing to do. A migrator that is killed, or whose server is, leaves either the
// version before or the version after, and the next one goes on from there; one that is stopped between
// two statements is ended by the server, some ten seconds later. A Down is one
// transaction as a whole. When an Up and a Down run at once each comes to its end: the Up goes on to
// the last version, the Down destroys nothing that was made after it was called. Nothing is kept in
// the session, so it works through a pooler in transaction mode too.
//
// The context bounds the whole call, waiting for other migrators included; without a deadline a
// migrator waits as long as the others need. When it ends, the connection is closed and what was
// not committed is gone.
//
// # Other migration tools
//
// [All] returns the SQL for those who apply it themselves, and "pglease migrate print" writes it
// as files for golang-migrate, goose and tern.
package migrations

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/schema"
)

// A Line is a series of migrations that is applied by itself.
type Line string

// The lines. [Lines] tells which of them this version of the module has.
const (
	Lease  Line = "lease"  // leases, their history and the queue for them
	Jobs   Line = "jobs"   // the job queue
	Fence  Line = "fence"  // watermarks of protected resources, and the trigger for tables
	Report Line = "report" // the fenced report store
)

// DefaultSchema is where the tables go unless another schema is named.
const DefaultSchema = schema.Default

// Up applies what is missing of a line, in the schema [DefaultSchema]. It is not an error when
// nothing is. See [Migrator.Up].
func Up(ctx context.Context, pool *pgxpool.Pool, line Line) error {
	m, err := New(DefaultSchema)
	if err != nil {
		return err
	}
	_, err = m.Up(ctx, pool, line)
	return err
}

// Down reverts all of a line and destroys its data, in the schema [DefaultSchema]. See
// [Migrator.Down].
func Down(ctx context.Context, pool *pgxpool.Pool, line Line) error {
	m, err := New(DefaultSchema)
	if err != nil {
		return err
	}
	_, err = m.Down(ctx, pool, line)
	return err
}

// Version tells which version of a line the schema [DefaultSchema] has. See [Migrator.Version].
func Version(ctx context.Context, pool *pgxpool.Pool, line Line) (State, error) {
	m, err := New(DefaultSchema)
	if err != nil {
		return State{}, err
	}
	return m.Version(ctx, pool, line)
}
