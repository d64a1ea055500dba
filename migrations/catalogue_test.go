package migrations_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/catalogue"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func dump(t *testing.T, pool *pgxpool.Pool, schema string) string {
	t.Helper()
	text, err := catalogue.Dump(t.Context(), pool, schema)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestUpDownUpLeavesTheSameCatalogue(t *testing.T) {
	t.Parallel()
	for _, line := range migrations.Lines() {
		t.Run(string(line), func(t *testing.T) {
			t.Parallel()
			pool := pgleasetest.Pool(t)
			const schema = "twice"
			up(t, pool, schema, line)
			before := dump(t, pool, schema)
			if n := strings.Count(before, "\n"); n < 20 {
				t.Fatalf("the dump has only %d lines:\n%s", n, before)
			}
			down(t, pool, schema, line)
			if left := dump(t, pool, schema); left != "" {
				t.Errorf("down left:\n%s", left)
			}
			up(t, pool, schema, line)
			if after := dump(t, pool, schema); after != before {
				t.Errorf("up, down, up made another catalogue:\n%s", catalogue.Differences(before, after))
			}
		})
	}
}

// Each down must undo its own up, or a person who goes back one version gets a mixture.
func TestEachDownUndoesItsUp(t *testing.T) {
	t.Parallel()
	for _, line := range migrations.Lines() {
		t.Run(string(line), func(t *testing.T) {
			t.Parallel()
			pool := pgleasetest.Pool(t)
			const schema = "steps"
			execute(t, pool, "CREATE SCHEMA "+schema)
			all, err := migrations.All(line, schema)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range all {
				before := dump(t, pool, schema)
				execute(t, pool, m.Up)
				with := dump(t, pool, schema)
				execute(t, pool, m.Down)
				if after := dump(t, pool, schema); after != before {
					t.Errorf("version %d down differs from what was before it:\n%s", m.Version, catalogue.Differences(before, after))
				}
				execute(t, pool, m.Up)
				if again := dump(t, pool, schema); again != with {
					t.Errorf("version %d differs the second time:\n%s", m.Version, catalogue.Differences(with, again))
				}
			}
		})
	}
}

// What a service keeps in our schema, or had before us, is not ours to drop.
func TestDownKeepsWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)

	execute(t, pool, "CREATE SCHEMA theirs")
	up(t, pool, "theirs", migrations.Lease)
	down(t, pool, "theirs", migrations.Lease)
	if !hasSchema(t, pool, "theirs") {
		t.Error("down dropped a schema that it had not made")
	}

	up(t, pool, "shared", migrations.Lease)
	execute(t, pool, "CREATE TABLE shared.theirs ()")
	down(t, pool, "shared", migrations.Lease)
	if text := dump(t, pool, "shared"); !strings.Contains(text, "relation theirs") {
		t.Errorf("down dropped another's table; left is:\n%s", text)
	} else if strings.Contains(text, "resource_lease") {
		t.Errorf("down left tables of ours:\n%s", text)
	}
}

func TestLinesAreApart(t *testing.T) {
	t.Parallel()
	lines := migrations.Lines()
	pool := pgleasetest.Pool(t)
	for _, line := range lines {
		up(t, pool, "apart", line)
	}
	for i, line := range lines {
		down(t, pool, "apart", line)
		if has, want := hasSchema(t, pool, "apart"), i < len(lines)-1; has != want {
			t.Errorf("after down of %q: schema there %v, want %v", lines[:i+1], has, want)
		}
		for _, other := range lines[i+1:] {
			state, err := newMigrator(t, "apart").Version(t.Context(), pool, other)
			if err != nil || state.Version != migrations.Latest(other) {
				t.Errorf("down of %s left %s at %+v, %v", line, other, state, err)
			}
		}
	}
}
