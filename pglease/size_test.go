package pglease_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/pglease/pglease/pglease"
)

// TestALeaseIsSmall runs alone, because it looks at the whole heap: less than 2 KiB a lease, and no
// goroutine a lease.
func TestALeaseIsSmall(t *testing.T) { //nolint:paralleltest // see above
	fake := newFake()
	client, err := pglease.NewWithAuthority(fake, pglease.Config{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	const n = 10_000
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("shard/%05d", i)
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	leases := make([]*pglease.Lease, n)
	for i, name := range names {
		leases[i] = acquire(t, client, name)
	}
	// The fake's own row of each lease is counted too.
	if each := (heap() - before) / n; each > 2048 {
		t.Errorf("%d bytes a lease", each)
	} else {
		t.Logf("%d bytes a lease", each)
	}
	if more := runtime.NumGoroutine() - goroutines; more > 2 {
		t.Errorf("%d goroutines for %d leases", more, n)
	}
	runtime.KeepAlive(leases)
	if err := client.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
