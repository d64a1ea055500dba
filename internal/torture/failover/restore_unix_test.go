//go:build unix

package failover_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/internal/torture/failover/crew"
	"github.com/pglease/pglease/internal/torture/failover/servers"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
	"github.com/pglease/pglease/reportstore"
)

const report = "report/2026-07"

// own has one owner after another publish, and returns the last one's token.
func own(t *testing.T, client *pglease.Client, store *reportstore.Store, times int) (last fence.Token) {
	t.Helper()
	for range times {
		lease, err := client.Acquire(t.Context(), report)
		if err != nil {
			t.Fatal(err)
		}
		if !last.IsZero() && lease.Token().Fence() <= last.Fence() {
			t.Errorf("fence %d was followed by %d", last.Fence(), lease.Token().Fence())
		}
		last = lease.Token()
		if _, err := store.Publish(t.Context(), last, reportstore.Report{ID: report, Body: []byte(last.String()), ExpectedVersion: reportstore.AnyVersion}); err != nil {
			t.Error(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	return last
}

func newClient(t *testing.T, url string) *pglease.Client {
	t.Helper()
	return newClientWith(t, url, pglease.Config{TTL: time.Minute})
}

func newClientWith(t *testing.T, url string, config pglease.Config) *pglease.Client {
	t.Helper()
	client, err := pglease.New(t.Context(), servers.Pool(t, url), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.WithoutCancel(t.Context())) })
	return client
}

// newStore returns reports that are elsewhere, and outlive what happens to the leases.
func newStore(t *testing.T) *reportstore.Store {
	t.Helper()
	store, err := reportstore.New(servers.Pool(t, pgleasetest.URL(t, migrations.Report)), reportstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// wantOrderKept checks that an owner from after the restore is not taken for a stale one, that the last one
// from before it is, and what the report says of it all.
func wantOrderKept(t *testing.T, url string, store *reportstore.Store, last fence.Token) {
	t.Helper()
	next := own(t, newClient(t, url), store, 3)
	if next.Fence() <= last.Fence() {
		t.Errorf("fence %d was followed by %d", last.Fence(), next.Fence())
	}
	if _, err := store.Publish(t.Context(), last, reportstore.Report{ID: report, ExpectedVersion: reportstore.AnyVersion}); !fence.IsStale(err) {
		t.Errorf("the last owner from before publishes: %v", err)
	}
	history, err := store.History(t.Context(), report)
	if err != nil {
		t.Fatal(err)
	}
	if stale := reportstore.Regressions(history); len(stale) > 0 {
		t.Errorf("an older owner wrote over a newer one's work: %+v", stale)
	}
}

// shell runs a command on the files of a server.
func shell(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

func restart(t *testing.T, s *postgres.Server) {
	t.Helper()
	if err := s.Restart(t.Context()); err != nil {
		log, _ := os.ReadFile(s.LogFile())
		t.Fatalf("%v\n%s", err, log)
	}
}

func kill(t *testing.T, s *postgres.Server) {
	t.Helper()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
}

// TestSnapshotRestored: the server's files go back to what they were, on the same timeline. Here the clock
// keeps the order.
//
//	   authority                                 report
//	1  grants up to f, and is copied             accepts f
//	2  grants up to g                            accepts g
//	3  is killed; the copy is put in its place
//	4  knows of f; grants h > g                  accepts h, refuses g
func TestSnapshotRestored(t *testing.T) {
	t.Parallel()
	server := servers.Own(t, postgres.Options{Durable: true})
	store := newStore(t)
	own(t, newClient(t, server.URL()), store, 3)
	kill(t, server)
	snapshot := server.DataDir() + ".snapshot"
	shell(t, "cp", "-a", server.DataDir(), snapshot)
	restart(t, server)
	last := own(t, newClient(t, server.URL()), store, 5)
	kill(t, server)
	shell(t, "rm", "-r", server.DataDir())
	shell(t, "mv", snapshot, server.DataDir())
	restart(t, server)
	if crew.Known(t, server.URL())[last.LeaseID().String()] {
		t.Error("the last grant is there: nothing was restored")
	}
	wantOrderKept(t, server.URL(), store, last)
}

// TestRestoredToAPointInTime: the server is restored from a copy and its archive, up to a point before the
// last grants. That starts a new timeline.
//
//	   authority                                 archive     report
//	1  is copied; grants up to f                 has them    accepts f
//	2  notes a restore point; grants up to g     has them    accepts g
//	3  the copy is put in its place
//	4  recovers up to the point: knows of f
//	5  grants h > g                                          accepts h, refuses g
func TestRestoredToAPointInTime(t *testing.T) {
	t.Parallel()
	archive := archiveDir(t)
	server := servers.Own(t, postgres.Options{Durable: true, Settings: map[string]string{
		"archive_mode": "on", "archive_command": fmt.Sprintf("cp %%p %s/%%f", archive),
	}})
	store := newStore(t)
	kill(t, server)
	snapshot := server.DataDir() + ".snapshot"
	shell(t, "cp", "-a", server.DataDir(), snapshot)
	restart(t, server)
	first := own(t, newClient(t, server.URL()), store, 3)
	servers.Value[string](t, server.URL(), "SELECT pg_create_restore_point('before')::text")
	last := own(t, newClient(t, server.URL()), store, 5)
	segment := servers.Value[string](t, server.URL(), "SELECT pg_walfile_name(pg_switch_wal())")
	for servers.Value[string](t, server.URL(), "SELECT coalesce(last_archived_wal, '') FROM pg_stat_archiver") < segment {
		time.Sleep(5 * time.Millisecond)
	}

	kill(t, server)
	shell(t, "rm", "-r", server.DataDir())
	shell(t, "mv", snapshot, server.DataDir())
	shell(t, "sh", "-c", fmt.Sprintf(`cd "$0" && cp -p PG_VERSION recovery.signal && cat >>postgresql.auto.conf <<END
restore_command = 'cp %s/%%f %%p'
recovery_target_name = 'before'
recovery_target_action = 'promote'
END`, archive), server.DataDir())
	restart(t, server)
	for servers.Value[bool](t, server.URL(), "SELECT pg_is_in_recovery()") {
		time.Sleep(5 * time.Millisecond)
	}
	there := crew.Known(t, server.URL())
	if !there[first.LeaseID().String()] || there[last.LeaseID().String()] {
		t.Errorf("restored to the wrong point: %v, %v of %d", first, last, len(there))
	}
	wantOrderKept(t, server.URL(), store, last)
}

// archiveDir is a directory that the server's user may write to.
func archiveDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pglease-archive-") //nolint:usetesting // the server's user may not enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // so that it may
		t.Fatal(err)
	}
	return dir
}
