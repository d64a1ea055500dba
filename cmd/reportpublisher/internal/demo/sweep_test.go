//go:build unix

package demo_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/cmd/reportpublisher/internal/demo"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// A demo drops what dead demos left. A demo at work keeps its schema, and so does all that a demo
// was told to keep or that is not a demo's.
func TestSweepSparesTheLiving(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	var comment string
	atWork := ""
	playUntil(t, pool, func() {
		schemas := named(t, pool)
		if len(schemas) != 1 {
			t.Fatalf("schemas %q, want that of the demo", schemas)
		}
		atWork = schemas[0]
		if err := pool.QueryRow(t.Context(), "SELECT obj_description(to_regnamespace($1)::oid, 'pg_namespace')", atWork).Scan(&comment); err != nil {
			t.Fatal(err)
		}
		for _, s := range []struct{ name, comment string }{
			{"reportpublisher_demo_00000001", comment}, // dead
			{"reportpublisher_demo_00000002", "made by pglease migrate"},
			{"reportpublisher_demo_00000003", ""},
			{"reportpublisher_demo_mine", comment},
		} {
			for _, sql := range []string{
				"CREATE SCHEMA " + s.name, "COMMENT ON SCHEMA " + s.name + " IS '" + s.comment + "'",
				"CREATE TABLE " + s.name + ".t ()",
			} {
				if _, err := pool.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
		}
		playUntil(t, pool, func() {}) // the other demo, which sweeps
		want := []string{"reportpublisher_demo_00000002", "reportpublisher_demo_00000003", atWork, "reportpublisher_demo_mine"}
		if got := named(t, pool); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("left are %q, want %q", got, want)
		}
	})
	if slices.Contains(named(t, pool), atWork) {
		t.Errorf("%s is left by its own demo", atWork)
	}
}

// playUntil plays a demo on the pool's database, calls then when its stage is built, and lets it
// fail.
func playUntil(t *testing.T, pool *pgxpool.Pool, then func()) {
	t.Helper()
	once := false
	options := demo.Options{
		URL: pool.Config().ConnString(), TTL: time.Second,
		Command: func(demo.Worker) *exec.Cmd {
			if !once {
				once = true
				then()
			}
			return exec.Command("sh", "-c", "exit 3")
		},
	}
	if _, err := options.Play(t.Context(), demo.NewStory(new(strings.Builder))); err == nil {
		t.Error("the demo of dead workers was played to its end")
	}
}

// named returns the schemas that have a demo's name, sorted.
func named(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT nspname::text FROM pg_namespace WHERE nspname LIKE 'reportpublisher_demo_%' ORDER BY nspname COLLATE "C"`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}
