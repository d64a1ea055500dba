package migrations_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestUpSaysWhatItDid(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	const schema = "says"
	m := newMigrator(t, schema)
	latest := migrations.Latest(migrations.Lease)

	state, err := m.Version(t.Context(), pool, migrations.Lease)
	if err != nil || state != (migrations.State{Latest: latest}) {
		t.Errorf("version without a schema: %+v, %v", state, err)
	}
	first := up(t, pool, schema, migrations.Lease)
	if first.From != 0 || first.To != latest || len(first.Applied) != int(latest) {
		t.Errorf("first up went from %d to %d with %d migrations", first.From, first.To, len(first.Applied))
	}
	state, err = m.Version(t.Context(), pool, migrations.Lease)
	if err != nil || state != (migrations.State{Version: latest, Latest: latest}) {
		t.Errorf("version after up: %+v, %v", state, err)
	}
	second := up(t, pool, schema, migrations.Lease)
	if second.From != latest || second.To != latest || len(second.Applied) != 0 || second.Adopted {
		t.Errorf("second up: %+v", second)
	}
	reverted := down(t, pool, schema, migrations.Lease)
	if reverted.From != latest || reverted.To != 0 || len(reverted.Applied) != int(latest) {
		t.Errorf("down went from %d to %d with %d migrations", reverted.From, reverted.To, len(reverted.Applied))
	}
	if again := down(t, pool, schema, migrations.Lease); len(again.Applied) != 0 {
		t.Errorf("second down: %+v", again)
	}
}

func TestDefaultSchema(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	ctx := t.Context()
	for _, want := range []uint{0, migrations.Latest(migrations.Lease)} {
		var err error
		if want == 0 {
			err = migrations.Down(ctx, pool, migrations.Lease)
		} else {
			err = migrations.Up(ctx, pool, migrations.Lease)
		}
		if err != nil {
			t.Fatal(err)
		}
		state, err := migrations.Version(ctx, pool, migrations.Lease)
		if err != nil || state.Version != want {
			t.Errorf("version %+v, %v, want %d", state, err, want)
		}
	}
	if !hasSchema(t, pool, migrations.DefaultSchema) {
		t.Error("the default schema is another")
	}
}

func TestOddSchemaNames(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	names := []string{
		"UPPER", "with space", `quo"ted`, `"`, "apo'strophe", "semi;colon--", "per%cent", "do$llar", "a.b", "select", "Ünï çödé",
		`back\slash`, "/*comment", "/*schema.*/", "new\nline", strings.Repeat("é", 30),
	}
	linesOf := func(schema string) []migrations.Line {
		if strings.ContainsAny(schema, `"'%`) { // the names that other lines might stumble over
			return migrations.Lines()
		}
		return []migrations.Line{migrations.Lease}
	}
	for _, schema := range names { // all in one database
		for _, line := range linesOf(schema) {
			up(t, pool, schema, line)
		}
		execute(t, pool, quoted(schema, "SELECT floor FROM @.fence_floor"))
		if !hasSchema(t, pool, schema) {
			t.Errorf("%q is not the name of the schema", schema)
		}
	}
	for _, schema := range names {
		for _, line := range slices.Backward(linesOf(schema)) {
			down(t, pool, schema, line)
		}
		if hasSchema(t, pool, schema) {
			t.Errorf("down left schema %q", schema)
		}
	}
	for _, schema := range []string{"pg_mine", strings.Repeat("x", 61), "nul\x00", "bad\xff", "a$$b"} {
		if _, err := migrations.New(schema); err == nil {
			t.Errorf("schema name %q was accepted", schema)
		}
	}
}

// The settings of a session, of a role or of a database must not matter: not even a timeout for
// statements, which is meant for the application's.
func TestSettingsDoNotMatter(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	mine := poolAs(t, pool, "settings", map[string]string{
		"search_path": "nowhere", "default_transaction_isolation": "serializable", "statement_timeout": "300ms",
		"timezone": "Asia/Kathmandu", "datestyle": "German", "lock_timeout": "300ms",
	})
	release := block(t, pool, lockOf("settings"))
	done := make(chan error, 1)
	m := newMigrator(t, "settings")
	go func() {
		_, err := m.Up(t.Context(), mine, migrations.Lease)
		done <- err
	}()
	until(t, "it has waited for longer than it may", func() bool {
		return value[bool](t, pool, `
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'settings'
               AND wait_event = 'advisory' AND clock_timestamp() - query_start > interval '700 ms')`)
	})
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	down(t, pool, "settings", migrations.Lease)
}

// lockOf returns what takes the lock of the migrators of a schema.
func lockOf(schema string) string {
	return "SELECT pg_advisory_xact_lock(hashtextextended('pglease migrate " + schema + "', 0))"
}

// A pool of one connection that somebody holds must not stop a migrator.
func TestDrainedPool(t *testing.T) {
	t.Parallel()
	pool := pools.Open(t, pgleasetest.URL(t), pools.Conns(1))
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	up(t, pool, "drained", migrations.Lease)
	conn.Release()
}

func TestTenAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	lines := migrations.Lines()
	var applied [10]int
	var errs [10]error
	var wg sync.WaitGroup
	for i := range applied {
		m, line := newMigrator(t, "ten"), lines[i%len(lines)]
		wg.Go(func() {
			var result migrations.Result
			result, errs[i] = m.Up(t.Context(), pool, line)
			applied[i] = len(result.Applied)
		})
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Error(err)
	}
	total, want := 0, 0
	for _, n := range applied {
		total += n
	}
	for _, line := range lines {
		want += int(migrations.Latest(line))
	}
	if total != want {
		t.Errorf("%d migrations were applied, want %d", total, want)
	}
}

// bodies are those of functions and procedures.
var bodies = regexp.MustCompile(`(?s)\$\$.*?\$\$`)

func TestMigrationsAreWellFormed(t *testing.T) {
	t.Parallel()
	if !slices.Contains(migrations.Lines(), migrations.Lease) {
		t.Fatal("no line lease")
	}
	for _, line := range migrations.Lines() {
		all, err := migrations.All(line, `s"1`)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range all {
			if m.Version != uint(i+1) || m.Name == "" {
				t.Errorf("%s: migration %d has version %d and name %q", line, i+1, m.Version, m.Name)
			}
			for _, sql := range []string{m.Up, m.Down} {
				if strings.Contains(sql, "schema.*") || !strings.Contains(sql, `"s""1".`) {
					t.Errorf("%s %d: the schema was not put in", line, m.Version)
				}
				// {{ is a template to tern; a file is one transaction, and may not end it. A procedure of it may.
				outside := bodies.ReplaceAllString(sql, "")
				for _, banned := range []string{"{{", "COMMIT;", "BEGIN;", "CONCURRENTLY", "search_path"} {
					if strings.Contains(outside, banned) || banned != "COMMIT;" && strings.Contains(sql, banned) {
						t.Errorf("%s %d contains %q", line, m.Version, banned)
					}
				}
			}
		}
	}
	if _, err := migrations.All("nonsense", ""); err == nil || migrations.Latest("nonsense") != 0 {
		t.Error("an unknown line is known")
	}
}
