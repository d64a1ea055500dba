//go:build linux

package failover_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/internal/torture/failover/crew"
	"github.com/pglease/pglease/internal/torture/failover/servers"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// TestHistorysDiskFull: the history has a disk of its own, which fills up. What ends a tenure writes a row
// of it, and fails: the error says why, and nobody holds what he was not granted. When there is room,
// everything goes on, and the history is whole.
//
//	   owner                     waiter        another                      disk
//	1  holds a, b; b expires                                                full
//	2  releases a: disk full
//	3  holds a                   waits for a   may not have a: held
//	4  releases a: disk full     waits on      takes b over: disk full
//	5                                          acquires c, which is free
//	6                                                                       has room
//	7  releases a                owns a        takes b over
func TestHistorysDiskFull(t *testing.T) {
	t.Parallel()
	server := servers.Own(t, postgres.Options{Durable: true})
	disk := smallDisk(t, server)
	onDisk(t, server.URL(), disk)
	pool := servers.Pool(t, server.URL())
	owner, another := newClient(t, server.URL()), newClient(t, server.URL())
	b := acquire(t, owner, "b")
	pgleasetest.ExpireLease(t, pool, "b")
	fill(t, disk)
	a, err := acquireUntilFull(t, owner, "a")
	wantFull(t, err)
	wantCurrent(t, server.URL(), a)

	if _, err := another.TryAcquire(t.Context(), "a"); !errors.Is(err, pglease.ErrHeld) {
		t.Errorf("acquire what is held: %v", err)
	}
	waiting := make(chan *pglease.Lease, 1)
	go func() {
		lease, err := another.Acquire(t.Context(), "a")
		if err != nil {
			t.Errorf("the waiter: %v", err)
		}
		waiting <- lease
	}()
	for servers.Value[int](t, server.URL(), "SELECT count(*) FROM pglease.lease_waiter") == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	wantFull(t, a.Release(t.Context()))
	wantCurrent(t, server.URL(), a)
	_, err = another.TryAcquire(t.Context(), "b")
	wantFull(t, err)
	wantCurrent(t, server.URL(), b)
	c := acquire(t, another, "c")
	wantFull(t, c.Release(t.Context()))

	if err := os.Remove(filler(disk)); err != nil {
		t.Fatal(err)
	}
	if err := a.Release(t.Context()); err != nil {
		t.Error(err)
	}
	next := <-waiting
	taken := acquire(t, another, "b")
	wantAfter(t, next, a)
	wantAfter(t, taken, b)
	for _, l := range []*pglease.Lease{next, taken, c} {
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	there := crew.Known(t, server.URL())
	for _, l := range []*pglease.Lease{a, b, c, next, taken} {
		if !there[l.Token().LeaseID().String()] {
			t.Errorf("nothing is on record of %v", l.Token())
		}
	}
}

// smallDisk is a file system of a few megabytes that the server's user may write to.
func smallDisk(t *testing.T, server *postgres.Server) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pglease-disk-") //nolint:usetesting // the server's user may not enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	info, err := os.Stat(server.DataDir())
	if err != nil {
		t.Fatal(err)
	}
	who, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatalf("nobody owns %s", server.DataDir())
	}
	options := fmt.Sprintf("size=4m,mode=0700,uid=%d,gid=%d", who.Uid, who.Gid)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		servers.Needs(t, fmt.Sprintf("no small disk: mount: %v; it takes root", err))
	}
	servers.Guard(t, dir, `umount -l "$PLACE" && rmdir "$PLACE"`)
	return dir
}

// onDisk moves the history, and its indexes, to a tablespace on the disk.
func onDisk(t *testing.T, url, disk string) {
	t.Helper()
	conn := connect(t, url)
	for _, sql := range []string{
		"CREATE TABLESPACE small LOCATION '" + disk + "'",
		"ALTER TABLE pglease.lease_history SET TABLESPACE small",
		`DO $$ DECLARE index regclass; BEGIN
			FOR index IN SELECT indexrelid FROM pg_index WHERE indrelid = 'pglease.lease_history'::regclass LOOP
				EXECUTE format('ALTER INDEX %s SET TABLESPACE small', index);
			END LOOP;
		END $$`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

func filler(disk string) string { return filepath.Join(disk, "filler") }

// fill leaves no room on the disk.
func fill(t *testing.T, disk string) {
	t.Helper()
	f, err := os.Create(filler(disk))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// acquireUntilFull has one tenure after another end, until the pages that are there are full, and returns
// the lease whose release failed.
func acquireUntilFull(t *testing.T, client *pglease.Client, resource string) (*pglease.Lease, error) {
	t.Helper()
	for range 10_000 {
		lease := acquire(t, client, resource)
		if err := lease.Release(t.Context()); err != nil {
			return lease, err
		}
	}
	t.Fatal("the disk does not fill up")
	return nil, nil
}

func acquire(t *testing.T, client *pglease.Client, resource string) *pglease.Lease {
	t.Helper()
	lease, err := client.TryAcquire(t.Context(), resource)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// wantFull checks that an error tells that the disk is full, and nothing else.
func wantFull(t *testing.T, err error) {
	t.Helper()
	const diskFull = "53100"
	var told *pgconn.PgError
	if !errors.As(err, &told) || told.Code != diskFull {
		t.Errorf("on a full disk: %v", err)
	}
	for _, other := range []error{pglease.ErrHeld, pglease.ErrLost, pglease.ErrUnknownOutcome} {
		if errors.Is(err, other) {
			t.Errorf("on a full disk: %v, which is also %v", err, other)
		}
	}
}

// wantCurrent checks that a lease is still the one of its resource, and not ended.
func wantCurrent(t *testing.T, url string, l *pglease.Lease) {
	t.Helper()
	current := servers.Value[string](t, url, "SELECT coalesce(min(lease_id::text), '') FROM pglease.resource_lease WHERE resource_id = $1 AND ended_at IS NULL", l.Resource())
	if current != l.Token().LeaseID().String() {
		t.Errorf("the lease of %s is %q, not %v", l.Resource(), current, l.Token())
	}
}

func wantAfter(t *testing.T, next, before *pglease.Lease) {
	t.Helper()
	if order, err := next.Token().Compare(before.Token()); err != nil || order <= 0 {
		t.Errorf("%v came after %v: %v", next.Token(), before.Token(), err)
	}
}
