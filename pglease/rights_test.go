package pglease_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// documentedRights is the SQL of docs/operations.md, for the given role.
func documentedRights(t *testing.T, role string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```sql\n")
	sql, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("docs/operations.md has no SQL")
	}
	return strings.ReplaceAll(sql, " TO app;", " TO "+pgx.Identifier{role}.Sanitize()+";")
}

func TestTheRightsOfTheDocsAreEnough(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	role := "app_" + pool.Config().ConnConfig.Database
	quoted := pgx.Identifier{role}.Sanitize()
	for _, sql := range []string{"CREATE ROLE " + quoted, documentedRights(t, role)} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	t.Cleanup(func() {
		if _, err := pool.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+quoted+"; DROP ROLE "+quoted); err != nil {
			t.Logf("the role stays: %v", err)
		}
	})
	config := pool.Config()
	config.ConnConfig.RuntimeParams["role"] = role
	limited, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limited.Close)
	client, other := newClient(t, limited, pglease.Config{}), newClient(t, limited, pglease.Config{})
	held := acquire(t, client, "r")
	waiting := waitFor(t.Context(), other, "r")
	inLine(t, pool, "r", 1)
	seen, err := other.Describe(t.Context(), "r")
	if err != nil || len(seen.Line) != 1 {
		t.Errorf("Describe: %+v, %v", seen, err)
	}
	release(t, held)
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	pgleasetest.ExpireLease(t, pool, "r")
	last, err := client.Acquire(t.Context(), "r") // records the expiry
	if err != nil {
		t.Fatal(err)
	}
	if seen, err = client.Describe(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	if err := other.Break(t.Context(), seen, "ada", "a test"); err != nil {
		t.Errorf("Break: %v", err)
	}
	if err := last.Release(t.Context()); err == nil {
		t.Error("a broken lease was released")
	}
}
