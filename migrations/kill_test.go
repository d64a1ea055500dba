package migrations_test

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/catalogue"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// A process is a migrator that can be killed.
type process struct {
	*exec.Cmd
	name   string
	output bytes.Buffer
}

func start(t *testing.T, connString, name string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), os.Args[0]), name: name}
	p.Env = append(os.Environ(), migratorVariable+"="+named(t, connString, name))
	p.Stdout, p.Stderr = &p.output, &p.output
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// named gives sessions a name to be found by.
func named(t *testing.T, connString, name string) string {
	t.Helper()
	if !strings.HasPrefix(connString, "postgres") {
		return connString + " application_name=" + name
	}
	u, err := url.Parse(connString)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("application_name", name)
	u.RawQuery = q.Encode()
	return u.String()
}

func (p *process) mustSucceed(t *testing.T) {
	t.Helper()
	if err := p.Wait(); err != nil {
		t.Errorf("%s: %v: %s", p.name, err, &p.output)
	}
}

// Ten migrators, one of them killed while it is at a chosen point: the others do the work, and so
// does the killed one when it is started again. The points are places where a lock on a catalogue
// makes a migrator wait.
func TestOneOfTenIsKilled_O1(t *testing.T) {
	t.Parallel()
	points := []struct{ name, lock string }{
		{"before the schema", "LOCK TABLE pg_catalog.pg_namespace IN SHARE MODE"},
		{"behind the schema", "LOCK TABLE pg_catalog.pg_description IN SHARE MODE"},
		{"in the middle of the tables", "LOCK TABLE pg_catalog.pg_trigger IN SHARE MODE"},
		{"between the tables and the version", "LOCK TABLE crowded.migrations_lease IN SHARE MODE"},
	}
	for _, point := range points {
		for _, how := range []string{"process", "process and session"} {
			t.Run(point.name+", "+how, func(t *testing.T) {
				t.Parallel()
				killOneOfTen(t, point.lock, how == "process and session")
			})
		}
	}
}

func killOneOfTen(t *testing.T, lock string, sessionToo bool) {
	t.Helper()
	connString := pgleasetest.URL(t)
	pool, err := pgxpool.New(t.Context(), connString)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if strings.Contains(lock, crowded) { // its table has to be there to be locked
		if err := newMigrator(t, crowded).Force(t.Context(), pool, migrations.Lease, 0); err != nil {
			t.Fatal(err)
		}
	}
	release := block(t, pool, lock)
	victim := start(t, connString, "victim")
	until(t, "the victim waits for a table", func() bool { return waiting(t, pool, "victim", "relation") == 1 })
	var others []*process
	for i := range 9 {
		others = append(others, start(t, connString, fmt.Sprintf("other-%d", i)))
	}
	until(t, "the others wait for the victim", func() bool { return waiting(t, pool, "other-%", "advisory") == 9 })

	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // it says that it was killed
	if sessionToo {
		endVictim(t, pool)
	}
	// The lock is still held: only a server that notices the death lets the next migrator in.
	until(t, "the server notices", func() bool { return sessions(t, pool, "victim") == 0 })
	until(t, "the next one is at work", func() bool { return waiting(t, pool, "other-%", "relation") == 1 })
	release()

	for _, p := range others {
		p.mustSucceed(t)
	}
	start(t, connString, "victim").mustSucceed(t)
	state, err := newMigrator(t, crowded).Version(t.Context(), pool, migrations.Lease)
	if want := migrations.Latest(migrations.Lease); err != nil || state.Version != want || state.Dirty {
		t.Errorf("the line stands at %+v, %v", state, err)
	}
	up(t, pool, "reference", migrations.Lease)
	want := strings.ReplaceAll(dump(t, pool, "reference"), "reference", crowded)
	if got := dump(t, pool, crowded); got != want {
		t.Errorf("the catalogue differs from one that was made in peace:\n%s", catalogue.Differences(want, got))
	}
}

// endVictim ends the session of the killed process. The server may have noticed the death itself by
// then, within client_connection_check_interval: no session is left to be ended.
func endVictim(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	execute(t, pool, `
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'victim'`)
}
