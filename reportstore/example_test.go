package reportstore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

// Two owners of one report, the first of whom was paused for too long. A token comes from a lease;
// here both are written out.
func ExampleStore_Publish() {
	ctx := context.Background()
	pool, done := examplePool()
	defer done()
	store, err := reportstore.New(pool, reportstore.Config{})
	if err != nil {
		panic(err)
	}
	first, _ := fence.Parse("41:0197a3c2-6c1e-7d6f-8f5b-2f1f6a0c9b11:report/2026-07")
	second, _ := fence.Parse("42:0197a3c2-7f02-7b1a-9c3d-51d0c5e8a7f4:report/2026-07")

	report := reportstore.Report{ID: "report/2026-07", Body: []byte("total 420"), Owner: "W2"}
	published, err := store.Publish(ctx, second, report)
	fmt.Println("W2: version", published.Version, err)

	report = reportstore.Report{ID: "report/2026-07", Body: []byte("total 395"), Owner: "W1"}
	_, err = store.Publish(ctx, first, report)
	fmt.Println("W1:", err)
	fmt.Println("W1 is stale:", errors.Is(err, fence.ErrStaleOwner))

	now, err := store.Read(ctx, "report/2026-07")
	fmt.Printf("%s, by %s, fence %d %v\n", now.Body, now.Owner, now.Fence, err)
	// Output:
	// W2: version 1 <nil>
	// W1: reportstore: publish "report/2026-07": stale owner: fence 41 is older than 42 of W2
	// W1 is stale: true
	// total 420, by W2, fence 42 <nil>
}

// Establish shuts earlier owners out before the work is begun.
func ExampleStore_Establish() {
	ctx := context.Background()
	pool, done := examplePool()
	defer done()
	store, err := reportstore.New(pool, reportstore.Config{Owner: "W2"})
	if err != nil {
		panic(err)
	}
	first, _ := fence.Parse("41:0197a3c2-6c1e-7d6f-8f5b-2f1f6a0c9b11:report/2026-07")
	second, _ := fence.Parse("42:0197a3c2-7f02-7b1a-9c3d-51d0c5e8a7f4:report/2026-07")

	fmt.Println(store.Establish(ctx, second, "report/2026-07"))
	_, err = store.Publish(ctx, first, reportstore.Report{ID: "report/2026-07", Body: []byte("total 395")})
	fmt.Println(err)
	// Output:
	// <nil>
	// reportstore: publish "report/2026-07": stale owner: fence 41 is older than 42 of W2
}
