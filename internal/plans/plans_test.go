package plans_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

var update = flag.Bool("update", false, "write the plans that are kept")

func TestMain(m *testing.M) { pgleasetest.Main(m) }

// walks are the statements that may read a large table from its start, each with its reason.
var walks = map[string]string{}

// planned are the two ways to plan a prepared statement.
var planned = []string{"force_generic_plan", "force_custom_plan"}

// No statement walks through a large table, and the plans of the hot ones are as they were kept.
func TestPlans(t *testing.T) {
	t.Parallel()
	rows := 1_000_000
	if testing.Short() {
		rows = 100_000
	}
	pool := pgleasetest.Pool(t, migrations.Lease, migrations.Fence, migrations.Jobs)
	fill(t, pool, rows)
	kept := keptFor(t, pool)
	for name, dir := range packages {
		all := statements(t, dir)
		for _, want := range hot[name] {
			if !slices.ContainsFunc(all, func(s statement) bool { return s.name == want }) {
				t.Errorf("%s has no statement %s: is it called otherwise now?", dir, want)
			}
		}
		for _, s := range all {
			t.Run(name+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				text := ""
				for _, mode := range planned {
					plan := explain(t, pool, s, how{mode: mode, batch: 100})
					checkNoWalk(t, name+"."+s.name, mode, plan)
					text += mode + "\n" + plan + "\n"
				}
				// Tables that are a tenth as large have other plans now and then.
				if slices.Contains(hot[name], s.name) && !testing.Short() {
					checkKept(t, filepath.Join(kept, name, s.name+".txt"), text)
				}
			})
		}
	}
}

// how a statement is explained.
type how struct {
	mode  string // of its plan
	batch int    // how many rows it names, where it names many
	run   bool   // it is run as well, and undone
}

// explain returns the plan of a prepared statement, without what differs from run to run.
func explain(t *testing.T, pool *pgxpool.Pool, s statement, h how) string {
	t.Helper()
	var plan string
	err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		defer conn.Exec(context.WithoutCancel(t.Context()), "DEALLOCATE ALL") //nolint:errcheck // the connection is the test's own
		call, err := prepare(t, conn.Conn(), s, h)
		if err == nil {
			plan, err = explained(t, conn.Conn(), call, h)
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s, %+v: %v\n%s", s.name, h, err, s.sql)
	}
	return plan
}

// prepare prepares a statement and returns its call.
func prepare(t *testing.T, conn *pgx.Conn, s statement, h how) (call string, err error) {
	t.Helper()
	return prepareAs(t, conn, "s", s, h)
}

func prepareAs(t *testing.T, conn *pgx.Conn, name string, s statement, h how) (call string, err error) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), "SET plan_cache_mode = "+h.mode); err != nil {
		return "", err
	}
	if _, err := conn.Exec(t.Context(), "PREPARE "+name+" AS "+s.sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		return "", err
	}
	types, err := parameters(t, conn, name)
	if err != nil {
		return "", err
	}
	values := make([]string, len(types))
	for i, kind := range types {
		values[i] = sample(t, s, i, kind, h.batch)
	}
	if len(values) == 0 {
		return "EXECUTE " + name, nil
	}
	return "EXECUTE " + name + "(" + strings.Join(values, ", ") + ")", nil
}

func explained(t *testing.T, conn *pgx.Conn, call string, h how) (string, error) {
	t.Helper()
	options := "COSTS OFF"
	if h.run {
		options += ", ANALYZE, TIMING OFF, SUMMARY OFF"
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		return "", err
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	rows, err := tx.Query(t.Context(), "EXPLAIN ("+options+") "+call, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return "", err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return normalised(strings.Join(lines, "\n")), err
}

func parameters(t *testing.T, conn *pgx.Conn, name string) ([]string, error) {
	t.Helper()
	rows, err := conn.Query(t.Context(),
		`SELECT format_type(p, NULL) FROM pg_prepared_statements, unnest(parameter_types::oid[]) WITH ORDINALITY AS u(p, n) WHERE name = $1 ORDER BY n`,
		pgx.QueryExecModeSimpleProtocol, name)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

var arrays = regexp.MustCompile(`'\{[^']*\}'`)

// normalised leaves out long values.
func normalised(plan string) string { return arrays.ReplaceAllString(plan, "'{...}'") }

var walk = regexp.MustCompile(`Seq Scan on (\w+)`)

func checkNoWalk(t *testing.T, name, mode, plan string) {
	t.Helper()
	if _, allowed := walks[name]; allowed {
		return
	}
	for _, m := range walk.FindAllStringSubmatch(plan, -1) {
		if slices.Contains(large, m[1]) {
			t.Errorf("%s, %s, walks through %s:\n%s", name, mode, m[1], plan)
		}
	}
}

// keptFor is the directory of plans for the server's major version.
func keptFor(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	var version int
	if err := pool.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int / 10000").Scan(&version); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join("testdata", fmt.Sprint(version))
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && !*update {
		t.Logf("no plans are kept for Postgres %d: only that no statement walks through a large table is checked", version)
		return ""
	}
	return dir
}

func checkKept(t *testing.T, path, text string) {
	t.Helper()
	if !strings.HasPrefix(path, "testdata") {
		return
	}
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("the plan is not as kept in %s; if it is as good, write it with -update.\nkept:\n%s\nnow:\n%s", path, want, text)
	}
}
