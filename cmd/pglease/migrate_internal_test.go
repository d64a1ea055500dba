package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/commandtest"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// A session calls the command for one database and schema.
type session struct {
	t    *testing.T
	pool *pgxpool.Pool
	args []string
}

// newSession begins with a schema that does not exist.
func newSession(t *testing.T) session {
	t.Helper()
	url := pgleasetest.URL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return session{t, pool, []string{"--database-url", url, "--schema", "ops"}}
}

func (s session) call(stdin, command string) commandtest.Result {
	return call(s.t.Context(), stdin, append(strings.Fields(command), s.args...)...)
}

func (s session) execute(sql string) {
	s.t.Helper()
	if _, err := s.pool.Exec(s.t.Context(), sql); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func TestMigrateUpAndDown(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	latest := migrations.Latest(migrations.Lease)
	s.call("", "migrate version").Want(t, exitDone, fmt.Sprintf("lease: version 0, behind %d\n", latest), "")
	s.call("", "migrate down").Want(t, exitDone, "lease: nothing to do: nothing is applied\n", "")
	s.call("", "migrate up").Want(t, exitDone, "lease: applied 1 authority\n", "")
	s.call("", "migrate up").Want(t, exitDone, fmt.Sprintf("lease: nothing to do: version %d is the latest\n", latest), "")
	s.call("", "migrate version").Want(t, exitDone, fmt.Sprintf("lease: version %d, the latest\n", latest), "")
	s.execute("UPDATE ops.installation SET system_identifier = 1")
	s.call("", "migrate up").Want(t, exitDone, "lease: adopted: ", "")
	s.execute("UPDATE ops.migrations_lease SET version = 999")
	s.call("", "migrate up").Want(t, exitDone, "lease: nothing to do: version 999 is newer", "")
	s.call("", "migrate version").Want(t, exitDone, "lease: version 999, newer than", "")
	s.call("", "migrate down --yes").Want(t, exitError, "", "Hint: use the program that applied it\n")
	s.call("", fmt.Sprintf("migrate force %d", latest)).Want(t, exitDone, fmt.Sprintf("lease: recorded version %d\n", latest), "")
	s.call("", "migrate down --yes").Want(t, exitDone, "lease: reverted 1 authority\n", "")
}

func TestMigrateDownAsks(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.call("", "migrate up --line all").Want(t, exitDone, "lease: applied 1 authority\n", "")
	s.execute(`
INSERT INTO ops.resource_lease (resource_id, owner_id, lease_id, request_id, fence, acquired_at, expires_at, ttl)
SELECT 'r' || n, 'o', gen_random_uuid(), gen_random_uuid(), 1, now(), now(), '1s' FROM generate_series(1, 3) AS n`)
	for _, answer := range []string{"", "n\n", "\n", "yess\n", "no"} {
		r := s.call(answer, "migrate down")
		r.Want(t, exitError, "", "pglease: nothing was changed: answer y, or pass --yes\n")
		if !strings.Contains(r.Stderr, `"ops".resource_lease `) || !strings.Contains(r.Stderr, "3 rows\n") ||
			strings.Contains(r.Stderr, "report") {
			t.Errorf("it says of what it destroys: %s", r.Stderr)
		}
	}
	r := s.call("Y\n", "migrate down --line all")
	r.Want(t, exitDone, "lease: reverted 1 authority\n", "[y/N] ")
	if !strings.HasPrefix(r.Stdout, "report: reverted") {
		t.Errorf("lines were not reverted in reverse: %s", r.Stdout)
	}
	s.call("", "migrate version --line all").Want(t, exitDone, "lease: version 0, behind", "")
}

// What another tool applied from the printed files is recorded at the version that it is at.
func TestMigrateUpAfterAnotherTool(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.execute(s.call("", "migrate print").Stdout)
	latest := migrations.Latest(migrations.Lease)
	force := fmt.Sprintf("migrate force --schema 'ops' %d", latest)
	s.call("", "migrate up").Want(t, exitError, "", "Hint: if another tool applied this version, run: pglease "+force+"\n")
	s.call("", fmt.Sprintf("migrate force %d", latest)).Want(t, exitDone, "recorded", "")
	s.call("", "migrate up").Want(t, exitDone, "nothing to do", "")
}

// A person who presses Ctrl-C at the question has answered it.
func TestMigrateDownInterrupted(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.call("", "migrate up").Want(t, exitDone, "applied", "")
	ctx, cancel := context.WithCancel(t.Context())
	terminal, keyboard := io.Pipe()
	t.Cleanup(func() { _ = keyboard.Close() })
	var stdout bytes.Buffer
	code := run(ctx, append([]string{"migrate", "down"}, s.args...), terminal, &stdout, onWrite(func(text string) {
		if strings.Contains(text, "[y/N]") {
			cancel()
		}
	}))
	if code != exitError || stdout.Len() > 0 {
		t.Errorf("exit code %d, stdout %q", code, stdout.String())
	}
	s.call("", "migrate version").Want(t, exitDone, "the latest", "")
}

// What was made between the question and its answer is not what the person agreed to lose.
func TestMigrateDownLeavesWhatWasMadeAfterTheQuestion(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.call("", "migrate up").Want(t, exitDone, "applied", "")
	latest := migrations.Latest(migrations.Report)
	var stdout, stderr bytes.Buffer
	answer := onRead(func() { s.call("", "migrate up --line report").Want(t, exitDone, "report: applied", "") })
	args := append([]string{"migrate", "down", "--line", "lease,report"}, s.args...)
	code := run(t.Context(), args, io.MultiReader(answer, strings.NewReader("y\n")), &stdout, &stderr)
	if code != exitError || stdout.Len() > 0 || !strings.Contains(stderr.String(), fmt.Sprintf("report: it was brought from version 0 to %d after the question", latest)) {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
	s.call("", "migrate version --line lease,report").Want(t, exitDone, fmt.Sprintf("report: version %d, the latest\n", latest), "")
}

// onRead is an input without a byte, which tells when it is read.
type onRead func()

func (f onRead) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

type onWrite func(text string)

func (f onWrite) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}

func TestMigrateSaysWhichStatement(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.execute("CREATE SCHEMA ops; CREATE TABLE ops.resource_lease ()")
	r := s.call("", "migrate up")
	r.Want(t, exitError, "", `pglease: migrate lease up: version 1 (authority): ERROR: relation "resource_lease" already exists`)
	r.Want(t, exitError, "", "The statement at fault:\n    CREATE TABLE \"ops\".resource_lease (\n        resource_id ")
	r.Want(t, exitError, "", "Hint: not all of this version is there: ")

	s.execute("CREATE TABLE ops.migrations_lease (version bigint, dirty boolean); INSERT INTO ops.migrations_lease VALUES (1, true)")
	s.call("", "migrate up").Want(t, exitError, "", "Hint: look at the tables, then run: pglease migrate force --schema 'ops' 1\n")
	s.call("", "migrate version").Want(t, exitDone, "lease: version 1, half applied by another tool\n", "")
	s.call("", "migrate force 99").Want(t, exitError, "", "there is no such version")
}
