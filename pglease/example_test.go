package pglease_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
)

// The usual way: Do acquires, renews while the work runs, cancels the work's context when the
// lease is lost, and releases after the work has returned.
func ExampleClient_Do() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	client, err := pglease.New(ctx, pool, pglease.Config{Owner: "billing-7f9c"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(context.WithoutCancel(ctx))

	err = client.Do(ctx, "report/2026-07", func(ctx context.Context, lease *pglease.Lease) error {
		// Hand the token to whatever you write to, and let it refuse older ones.
		fmt.Println("working under", lease.Token())
		return ctx.Err()
	})
	if errors.Is(err, pglease.ErrLost) {
		log.Print("another owner may have gone on: ", err)
	}
}

// A worker that does what it can while it may. Admit asks whether a unit of work still fits.
func ExampleLease_Admit() {
	var (
		ctx    context.Context
		client *pglease.Client
		tasks  <-chan func(*pglease.Lease)
	)
	lease, err := client.Acquire(ctx, "shard/12")
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(context.WithoutCancel(ctx))
	for {
		select {
		case task := <-tasks:
			for err := lease.Admit(5 * time.Second); err != nil; err = lease.Admit(5 * time.Second) {
				if !errors.Is(err, pglease.ErrNotAdmitted) {
					return // lost: somebody else may have the shard
				}
				time.Sleep(time.Second) // suspect: a renewal may mend it
			}
			task(lease)
		case <-lease.Done():
			return
		}
	}
}

// One attempt, for work that somebody else is doing already if the resource is held.
func ExampleClient_TryAcquire() {
	var (
		ctx    context.Context
		client *pglease.Client
	)
	lease, err := client.TryAcquire(ctx, "cleanup")
	var held *pglease.HeldError
	switch {
	case errors.As(err, &held):
		fmt.Printf("%s is at it, for at least %v more\n", held.Owner, held.Remaining)
		return
	case err != nil:
		log.Fatal(err)
	}
	defer lease.Release(ctx)
}

// Wait in line, for a bounded time, and see one's place.
func ExampleClient_Acquire() {
	var (
		ctx    context.Context
		client *pglease.Client
	)
	id := pglease.NewRequestID()
	lease, err := client.Acquire(ctx, "tenant/acme/sync", pglease.WithRequestID(id), pglease.WithMaxWait(time.Minute))
	switch {
	case errors.Is(err, pglease.ErrQueueFull):
		log.Print("too many wait already")
	case errors.Is(err, pglease.ErrHeld): // the minute is over
		if seen, err := client.Describe(ctx, "tenant/acme/sync"); err == nil {
			log.Printf("held by %s, %d wait", seen.Owner, len(seen.Line))
		}
	case err != nil:
		log.Print(err)
	default:
		defer lease.Release(ctx)
	}
}
