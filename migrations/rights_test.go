package migrations_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// login makes a role for this database and returns a pool of its sessions.
func login(t *testing.T, pool *pgxpool.Pool, name string) *pgxpool.Pool {
	t.Helper()
	role := name + "_" + value[string](t, pool, "SELECT current_database()")
	execute(t, pool, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret'")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, sql := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
			if _, err := pool.Exec(ctx, sql); err != nil {
				t.Errorf("%s: %v", sql, err)
			}
		}
	})
	return pools.Like(t, pool, func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = role, "secret" })
}

func TestRoleWithoutRights(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	mine := login(t, pool, "poor")
	m := newMigrator(t, "rights")
	_, err := m.Up(t.Context(), mine, migrations.Lease)
	failed := asError(t, err)
	if code := refusal(err); code != "42501" || failed.Statement != `CREATE SCHEMA "rights"` {
		t.Errorf("code %s, statement %q: %v", code, failed.Statement, err)
	}

	// An application's role may read. When the tables are there it can call Up at its start.
	up(t, pool, "rights", migrations.Lease)
	if _, err := m.Version(t.Context(), mine, migrations.Lease); refusal(err) != "42501" {
		t.Errorf("version without rights: %v", err)
	}
	role := mine.Config().ConnConfig.User
	execute(t, pool, "GRANT USAGE ON SCHEMA rights TO "+role)
	execute(t, pool, "GRANT SELECT ON ALL TABLES IN SCHEMA rights TO "+role)
	if result := up(t, mine, "rights", migrations.Lease); len(result.Applied) != 0 {
		t.Errorf("applied %+v", result.Applied)
	}
	if _, err := m.Down(t.Context(), mine, migrations.Lease); refusal(err) != "42501" || asError(t, err).Statement == "" {
		t.Errorf("down without rights: %v", err)
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	reader := poolAs(t, pool, "reader", map[string]string{"default_transaction_read_only": "on"})
	_, err := newMigrator(t, "readonly").Up(t.Context(), reader, migrations.Lease)
	if refusal(err) != "25006" || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("error: %v", err)
	}
	if result := up(t, reader, migrations.DefaultSchema, migrations.Lease); len(result.Applied) != 0 {
		t.Errorf("applied %+v", result.Applied)
	}
}

func refusal(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}
