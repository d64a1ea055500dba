//go:build unix

package filestore_test

import (
	"context"
	"fmt"
	"os"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/filestore"
)

// An owner that stopped for too long comes back, and writes what it had begun.
func Example() {
	dir, err := os.MkdirTemp("", "reports-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := filestore.Open(dir, "report/2026-07")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()

	// In a program they are those of leases: lease.Token().
	first, _ := fence.Parse("41:0197a3c2-6c1e-7d6f-8f5b-2f1f6a0c9b11:report/2026-07")
	second, _ := fence.Parse("42:0197a3c9-11f0-7aa0-9b1e-5c0d7be1f2a4:report/2026-07")

	ctx := context.Background()
	fmt.Println(store.Establish(ctx, first))
	fmt.Println(store.Write(ctx, second, "summary.csv", []byte("total,1200\n")))

	err = store.Write(ctx, first, "summary.csv", []byte("total,900\n"))
	fmt.Println(err)
	fmt.Println(fence.IsStale(err))
	// Output:
	// <nil>
	// <nil>
	// filestore: write "summary.csv": stale owner: fence 41 is older than 42 of lease 0197a3c9-11f0-7aa0-9b1e-5c0d7be1f2a4
	// true
}
