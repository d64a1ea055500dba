package pgleasetest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/schema"
)

// Option changes where a helper looks.
type Option func(*options)

type options struct{ schema string }

// InSchema names the schema of pglease's tables where it is not the default.
func InSchema(name string) Option { return func(o *options) { o.schema = name } }

// The time of expiry may not precede that of acquisition, or history would not add up.
const expireLease = `
UPDATE /*schema.*/resource_lease
   SET expires_at = least(expires_at, greatest(acquired_at, clock_timestamp() - interval '1 second'))
 WHERE resource_id = $1
   AND ended_at IS NULL`

// ExpireLease makes the current lease on a resource expire now, in the database alone: its holder
// learns of it as it would of a pause, by the next renewal, which is refused, or by its own clock.
// It fails the test when nobody holds a lease on the resource.
func ExpireLease(tb testing.TB, pool *pgxpool.Pool, resource string, opts ...Option) {
	tb.Helper()
	var o options
	for _, set := range opts {
		set(&o)
	}
	s, err := schema.New(o.schema)
	if err != nil {
		tb.Fatalf("pgleasetest: expire the lease on %q: %v", resource, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), databaseTime)
	defer cancel()
	tag, err := pool.Exec(ctx, s.SQL(expireLease), resource)
	if err != nil {
		tb.Fatalf("pgleasetest: expire the lease on %q: %v", resource, err)
	}
	if tag.RowsAffected() == 0 {
		tb.Fatalf("pgleasetest: expire the lease on %q: there is none", resource)
	}
}
