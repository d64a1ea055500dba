package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/jobs"
)

// A worker does jobs until its context ends.
func ExampleRun() {
	pool, done := examplePool()
	defer done()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()

	client, err := jobs.New(pool, jobs.Config{})
	if err != nil {
		panic(err)
	}
	_, err = client.Enqueue(ctx, jobs.Job{Queue: "mail", Payload: []byte(`{"to": "ann"}`)})
	if err != nil {
		panic(err)
	}
	err = jobs.Run(ctx, pool, jobs.Config{Queue: "mail"}, func(_ context.Context, claim *jobs.Claim) error {
		fmt.Printf("attempt %d: %s\n", claim.Attempt, claim.Payload)
		stop()
		return nil
	})
	fmt.Println(err)
	// Output:
	// attempt 1: {"to": "ann"}
	// <nil>
}

// The effect and the end of the job are one transaction. A worker that was paused for too long
// does neither.
func ExampleClient_CompleteTx() {
	ctx := context.Background()
	pool, done := examplePool()
	defer done()
	client, err := jobs.New(pool, jobs.Config{TTL: 100 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE balance (account text PRIMARY KEY, cents int)"); err != nil {
		panic(err)
	}
	if _, err := client.Enqueue(ctx, jobs.Job{Queue: "interest", Payload: []byte(`"ann"`)}); err != nil {
		panic(err)
	}
	pay := func(claim *jobs.Claim) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO balance AS b VALUES ($1::json #>> '{}', 100)
				ON CONFLICT (account) DO UPDATE SET cents = b.cents + 100`, string(claim.Payload))
			if err != nil {
				return err
			}
			return client.CompleteTx(ctx, tx, claim)
		})
	}
	first := claimOne(ctx, client, "interest")
	second := claimOne(ctx, client, "interest") // the first one's time has run out
	fmt.Println("second:", pay(second))
	err = pay(first)
	fmt.Println("first is stale:", errors.Is(err, jobs.ErrStaleClaim), errors.Is(err, fence.ErrStaleOwner))
	var cents int
	err = pool.QueryRow(ctx, "SELECT cents FROM balance WHERE account = 'ann'").Scan(&cents)
	fmt.Println(cents, err)
	// Output:
	// second: <nil>
	// first is stale: true true
	// 100 <nil>
}

// claimOne asks until there is a job.
func claimOne(ctx context.Context, client *jobs.Client, queue string) *jobs.Claim {
	for {
		claims, err := client.Claim(ctx, queue, 1)
		if err != nil {
			panic(err)
		}
		if len(claims) == 1 {
			return claims[0]
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A second job with the key is answered with the first.
func ExampleUnique() {
	ctx := context.Background()
	pool, done := examplePool()
	defer done()
	client, err := jobs.New(pool, jobs.Config{})
	if err != nil {
		panic(err)
	}
	run := jobs.Job{Queue: "reports", Unique: jobs.Unique{Key: "sales/2026-07", For: 24 * time.Hour}}
	first, err := client.Enqueue(ctx, run)
	if err != nil {
		panic(err)
	}
	if err := client.Complete(ctx, claimOne(ctx, client, "reports")); err != nil {
		panic(err)
	}
	second, err := client.Enqueue(ctx, run)
	fmt.Println(second[0].Duplicate, second[0].State, second[0].ID == first[0].ID, err)
	// Output: true done true <nil>
}

// The state and its arbiter are one row; no lock is held.
func ExampleStates_Swap() {
	ctx := context.Background()
	pool, done := examplePool()
	defer done()
	if _, err := pool.Exec(ctx, "CREATE TABLE invoice (id int PRIMARY KEY, state text); INSERT INTO invoice VALUES (7, 'open')"); err != nil {
		panic(err)
	}
	invoices := jobs.States{Table: pgx.Identifier{"invoice"}}
	fmt.Println(invoices.Swap(ctx, pool, 7, "open", "paid"))
	fmt.Println(invoices.Swap(ctx, pool, 7, "open", "void"))
	fmt.Println(errors.Is(invoices.Swap(ctx, pool, 8, "open", "void"), jobs.ErrGone))
	// Output:
	// <nil>
	// jobs: swap "7": not in that state: 7 is "paid", not "open"
	// true
}

// A message is written with the change, and relayed by whoever holds the lease of the outbox. A
// token comes from a lease; here it is written out.
func ExampleOutbox() {
	ctx := context.Background()
	pool, done := examplePool()
	defer done()
	client, err := jobs.New(pool, jobs.Config{})
	if err != nil {
		panic(err)
	}
	outbox, err := client.Outbox("outbox/orders")
	if err != nil {
		panic(err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// ... the change itself ...
		return outbox.Write(ctx, tx, jobs.Message{Key: "order/7", Topic: "orders", Body: []byte("paid")})
	})
	if err != nil {
		panic(err)
	}
	token, _ := fence.Parse("42:0197a3c2-7f02-7b1a-9c3d-51d0c5e8a7f4:outbox/orders")
	relay, err := outbox.Relay(token)
	if err != nil {
		panic(err)
	}
	n, err := relay.Run(ctx, 100, func(_ context.Context, d jobs.Delivery) error {
		fmt.Printf("%s, %s: %s, fence %d\n", d.Topic, d.Key, d.Body, d.Token.Fence())
		return nil
	})
	fmt.Println(n, err)
	// Output:
	// orders, order/7: paid, fence 42
	// 1 <nil>
}
