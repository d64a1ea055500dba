package pgleasetest_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestMain(m *testing.M) { pgleasetest.Main(m) }

// childVariable lets the tests named TestChild... run, in a process that a test started.
const childVariable = "PGLEASE_TEST_CHILD"

func onlyAsChild(t *testing.T) {
	t.Helper()
	if os.Getenv(childVariable) == "" {
		t.Skip("another test runs this in a process of its own")
	}
}

// child runs one test of this package in another process, and returns what it printed.
func child(t *testing.T, name string, env ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+name+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), childVariable+"=1"), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.String(), err
}

func TestChildUsesPool(t *testing.T) { //nolint:paralleltest // runs alone, in a process of its own
	onlyAsChild(t)
	checkMigrated(t, pgleasetest.Pool(t))
}

func TestChildFails(t *testing.T) { //nolint:paralleltest // runs alone, in a process of its own
	onlyAsChild(t)
	pgleasetest.Pool(t)
	t.Error("on purpose")
}

func TestChildLeaks(t *testing.T) { //nolint:paralleltest // runs alone, in a process of its own
	onlyAsChild(t)
	go func() { select {} }()
}

// givenServer is one that children are told to use.
func givenServer(t *testing.T) (url string, conn *pgx.Conn) {
	t.Helper()
	server, err := postgres.Start(t.Context(), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	conn, err = pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return server.URL(), conn
}

func databases(t *testing.T, conn *pgx.Conn, prefix string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), "SELECT datname FROM pg_database WHERE starts_with(datname, $1)", prefix)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestTemplateIsMadeOnceByManyProcesses(t *testing.T) {
	t.Parallel()
	url, conn := givenServer(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if out, err := child(t, "TestChildUsesPool", "PGLEASE_TEST_DATABASE_URL="+url); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	group.Wait()
	if names := databases(t, conn, "pglease_"); len(names) != 1 || !strings.HasPrefix(names[0], "pglease_template_") {
		t.Errorf("databases %v, want one template", names)
	}
}

func TestFailedTestKeepsItsDatabase(t *testing.T) {
	t.Parallel()
	url, conn := givenServer(t)
	out, err := child(t, "TestChildFails", "PGLEASE_TEST_DATABASE_URL="+url)
	if err == nil {
		t.Fatalf("the child passed\n%s", out)
	}
	names := databases(t, conn, "pglease_test_")
	if len(names) != 1 || !strings.Contains(out, "/"+names[0]) {
		t.Errorf("databases %v, and the child said\n%s", names, out)
	}
}

func TestLeakFailsTheRun(t *testing.T) {
	t.Parallel()
	started := time.Now()
	out, err := child(t, "TestChildLeaks")
	if err == nil || !strings.Contains(out, "1 goroutines of pglease are left") || !strings.Contains(out, "TestChildLeaks") {
		t.Errorf("%v after %v\n%s", err, time.Since(started), out)
	}
}
