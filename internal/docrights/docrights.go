// Package docrights lets tests live by the rights that docs/operations.md grants, and no others.
package docrights

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
)

// document is where the rights stand, from the top of the repository.
const document = "docs/operations.md"

const password = "app"

// Pool makes a role that has the rights under these headings, and returns a pool that logs in as that
// role, and the role's name as SQL writes it. A heading is the comment that the SQL begins with. The
// role goes when the test is done; a database can have one.
func Pool(t *testing.T, owner *pgxpool.Pool, headings ...string) (pool *pgxpool.Pool, role string) {
	t.Helper()
	name := "app_" + owner.Config().ConnConfig.Database
	role = pgx.Identifier{name}.Sanitize()
	execute(t, owner, "CREATE ROLE "+role+" LOGIN PASSWORD '"+password+"'")
	t.Cleanup(func() {
		if _, err := owner.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Logf("the role stays: %v", err)
		}
	})
	for _, heading := range headings {
		execute(t, owner, strings.ReplaceAll(under(t, heading), " TO app;", " TO "+role+";"))
	}
	return pools.Like(t, owner, func(c *pgxpool.Config) {
		c.ConnConfig.User, c.ConnConfig.Password = name, password
	}), role
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// under returns the SQL of the document under a heading.
func under(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top(t), filepath.FromSlash(document)))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```sql\n-- "+heading+"\n")
	sql, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatalf("%s has no rights under %q", document, heading)
	}
	return sql
}

// top returns the directory of go.mod: a test runs in that of its package.
func top(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("there is no go.mod above the test's directory")
		}
		dir = filepath.Dir(dir)
	}
}

// Forbidden fails the test unless each statement is refused for want of a right.
func Forbidden(t *testing.T, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := pool.Exec(t.Context(), sql); !IsForbidden(err) {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// IsForbidden tells whether a statement was refused for want of a right.
func IsForbidden(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "42501" // insufficient_privilege
}
