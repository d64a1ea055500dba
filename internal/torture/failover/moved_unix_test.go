//go:build unix

package failover_test

import (
	"bytes"
	"context"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/internal/torture/failover/servers"
	"github.com/pglease/pglease/migrations"
)

// TestMovedToAnotherCluster: the data is taken to a new server, as a dump does. There the timeline starts
// again, and the system identifier is another. Until the installation is adopted, fences can repeat.
//
//	   old server, on timeline 2       new server                            report
//	1  grants up to f                                                        accepts f
//	2  the tables are dumped
//	3  grants up to g                                                        accepts g
//	4                                  the dump is loaded
//	5                                  would grant f + 1, which is below g
//	6                                  is adopted
//	7                                  grants h > g                          accepts h, refuses g
func TestMovedToAnotherCluster(t *testing.T) {
	t.Parallel()
	t.Run("by its rows", func(t *testing.T) {
		t.Parallel()
		moveTo(t, postgres.Options{Durable: true}, func(old *postgres.Server) string {
			moved := servers.Own(t, postgres.Options{Fresh: true})
			copyRows(t, old.URL(), moved.URL())
			return moved.URL()
		})
	})
	t.Run("by pg_dump", func(t *testing.T) {
		t.Parallel()
		installed := whole(t)
		moveTo(t, postgres.Options{Durable: true, Version: installed.Major}, func(old *postgres.Server) string {
			moved := empty(t, installed)
			file := filepath.Join(t.TempDir(), "dump.sql")
			shell(t, installed.Program("pg_dump"), "--file="+file, old.URL())
			shell(t, installed.Program("psql"), "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--file="+file, moved.URL())
			return moved.URL()
		})
	})
}

// moveTo has owners before, while and after the data is taken elsewhere, and adopts it there.
func moveTo(t *testing.T, options postgres.Options, move func(old *postgres.Server) (url string)) {
	t.Helper()
	old := promoted(t, options)
	store := newStore(t)
	own(t, newClient(t, old.URL()), store, 2)
	moved := move(old)
	last := own(t, newClient(t, old.URL()), store, 5)

	next := servers.Value[int64](t, moved, "SELECT greatest(max(fence) + 1, (SELECT floor FROM pglease.fence_floor)) FROM pglease.resource_lease")
	if next > last.Fence() {
		t.Errorf("without being adopted it would grant %d after %d: the test shows nothing", next, last.Fence())
	}
	adopt(t, moved)
	wantOrderKept(t, moved, store, last)
}

// TestUpgraded: pg_upgrade takes the files to a cluster that another initdb has made. Nothing is lost, but
// its timeline starts again, so that a resource whose row was cleared away would begin below its own past.
// Here both are of one version, whose programs the machine has; pg_upgrade does the same as between two.
//
//	   old server, on timeline 2       new server                            report
//	1  grants up to f                                                        accepts f
//	2  is shut down                    pg_upgrade
//	3                                  would grant less than f where the row is new
//	4                                  is adopted
//	5                                  grants h > f                          accepts h, refuses f
func TestUpgraded(t *testing.T) {
	t.Parallel()
	installed := whole(t)
	old := promoted(t, postgres.Options{Durable: true, Version: installed.Major})
	store := newStore(t)
	last := own(t, newClient(t, old.URL()), store, 3)
	moved := upgrade(t, installed, old)

	if floor := servers.Value[int64](t, moved, "SELECT floor FROM pglease.fence_floor"); floor > last.Fence() {
		t.Errorf("without being adopted a new row would begin at %d after %d: the test shows nothing", floor, last.Fence())
	}
	adopt(t, moved)
	if floor := servers.Value[int64](t, moved, "SELECT floor FROM pglease.fence_floor"); floor <= last.Fence() {
		t.Errorf("a new row would begin at %d after %d", floor, last.Fence())
	}
	wantOrderKept(t, moved, store, last)
}

// upgrade moves a server's data to a new one, which it starts, and returns its URL.
func upgrade(t *testing.T, installed servers.Installed, old *postgres.Server) string {
	t.Helper()
	moved := empty(t, installed)
	was := servers.Value[string](t, moved.URL(), "SELECT system_identifier::text FROM pg_control_system()")
	run, err := moved.Accompany("upgrade")
	if err != nil {
		t.Fatal(err)
	}
	shutDown(t, old)
	shutDown(t, moved)
	err = run.Run(t.Context(), installed.Program("pg_upgrade"), "--username=postgres", "--socketdir="+filepath.Dir(moved.DataDir()),
		"--old-bindir="+old.BinDir(), "--new-bindir="+installed.Dir, "--old-datadir="+old.DataDir(), "--new-datadir="+moved.DataDir())
	if err != nil {
		t.Fatal(err)
	}
	<-run.Ended()
	if !strings.Contains(run.Log(), "Upgrade Complete") {
		t.Fatal(run.Log())
	}
	restart(t, moved)
	before, after := parse(t, old.URL()), parse(t, moved.URL())
	after.User = before.User // roles came along, with their passwords
	if is := servers.Value[string](t, after.String(), "SELECT system_identifier::text FROM pg_control_system()"); is != was {
		t.Errorf("the server is %s, and was %s", is, was)
	}
	return after.String()
}

// promoted is a server with leases, on timeline 2.
func promoted(t *testing.T, options postgres.Options) *postgres.Server {
	t.Helper()
	pair := servers.NewPairWith(t, options, options)
	pair.Fail(t)
	return pair.Standby
}

// whole finds a Postgres with all of its programs.
func whole(t *testing.T) servers.Installed {
	t.Helper()
	installed, err := servers.FindInstalled()
	if err != nil {
		servers.Needs(t, err)
	}
	return installed
}

// empty is a server with nothing on it.
func empty(t *testing.T, installed servers.Installed) *postgres.Server {
	t.Helper()
	server, err := postgres.Start(t.Context(), postgres.Options{Fresh: true, Version: installed.Major})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// shutDown ends a server in an orderly way, and keeps its data.
func shutDown(t *testing.T, s *postgres.Server) {
	t.Helper()
	if err := syscall.Kill(s.PID(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for s.PID() != 0 {
		time.Sleep(5 * time.Millisecond)
	}
}

func adopt(t *testing.T, url string) {
	t.Helper()
	m, err := migrations.New("")
	if err != nil {
		t.Fatal(err)
	}
	if adopted, err := m.Adopt(t.Context(), servers.Pool(t, url)); err != nil || !adopted {
		t.Fatalf("adopted: %v, %v", adopted, err)
	}
}

func parse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// copyRows copies the rows of the leases' tables, those of the new server's own installation replaced.
func copyRows(t *testing.T, from, to string) {
	t.Helper()
	source, target := connect(t, from), connect(t, to)
	if _, err := target.Exec(t.Context(), "SET session_replication_role = replica"); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"installation", "resource_lease", "lease_history"} {
		if _, err := target.Exec(t.Context(), "DELETE FROM pglease."+table); err != nil {
			t.Fatal(err)
		}
		copyTable(t, source, target, "pglease."+table)
	}
}

func copyTable(t *testing.T, source, target *pgx.Conn, table string) {
	t.Helper()
	var rows bytes.Buffer
	if _, err := source.PgConn().CopyTo(t.Context(), &rows, "COPY "+table+" TO STDOUT"); err != nil {
		t.Fatal(err)
	}
	if _, err := target.PgConn().CopyFrom(t.Context(), &rows, "COPY "+table+" FROM STDIN"); err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}
