package pglease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
)

// hurried is for waiters that do not wait long for the database. Nothing ends by a TTL.
var hurried = pglease.Config{TTL: time.Hour, PollEvery: time.Hour / 2, RequestTimeout: 250 * time.Millisecond}

// twoInLine has one client and then another wait for "r"; leave ends the first one's wait and returns what it is told.
func twoInLine(t *testing.T, pool *pgxpool.Pool, one, another *pglease.Client) (leave func() error, second <-chan served) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	first := waitFor(ctx, one, "r")
	inLine(t, pool, "r", 1)
	second = waitFor(t.Context(), another, "r")
	inLine(t, pool, "r", 2)
	return func() error {
		cancel()
		return (<-first).err
	}, second
}

// TestAPlaceThatCouldNotBeLeftIsLeftLater: the lease's row is locked for longer than the waiter tries, and others of
// its client wait on.
func TestAPlaceThatCouldNotBeLeftIsLeftLater(t *testing.T) {
	t.Parallel()
	waiter, _, pool := faulty(t, hurried)
	held := acquire(t, newClient(t, pool, pglease.Config{TTL: time.Hour}), "r")
	leave, second := twoInLine(t, pool, waiter, waiter)
	unlock := lockRow(t, pool, "r")
	if err := leave(); !errors.Is(err, pglease.ErrHeld) || !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	inLine(t, pool, "r", 2)
	unlock()
	inLine(t, pool, "r", 1)
	handOver(t, held, second)
}

// TestAnAcquireThatCouldNotBeResolvedIsEndedLater: the reply to a grant is lost, and then the database is not reached
// for longer than the client tries to give up what it may have been granted.
func TestAnAcquireThatCouldNotBeResolvedIsEndedLater(t *testing.T) {
	t.Parallel()
	client, faults, pool := faulty(t, hurried)
	faults.LoseNextReply(statement("Acquire"))
	for range 12 { // more often than it is tried before the call returns
		faults.FailNextSend(statement("Acquire"))
		faults.FailNextSend(statement("Abandon"))
	}
	if _, err := client.TryAcquire(t.Context(), "r"); err == nil || errors.Is(err, pglease.ErrHeld) {
		t.Fatal(err)
	}
	other := newClient(t, pool, pglease.Config{TTL: time.Hour})
	if _, err := other.TryAcquire(t.Context(), "r"); !errors.Is(err, pglease.ErrHeld) {
		t.Fatal(err)
	}
	next := <-waitFor(t.Context(), other, "r")
	if next.err != nil {
		t.Fatal(next.err)
	}
	release(t, next.lease)
}

// TestAPlaceThatWasServedAfterItsWaiterHadGoneIsGivenBack: the client is cut off, one of its waiters goes, and then that
// one's place is served: the server cannot know better. When the client is back, so is the lease.
func TestAPlaceThatWasServedAfterItsWaiterHadGoneIsGivenBack(t *testing.T) {
	t.Parallel()
	waiter, faults, pool := faulty(t, hurried)
	held := acquire(t, newClient(t, pool, pglease.Config{TTL: time.Hour}), "r")
	leave, second := twoInLine(t, pool, waiter, waiter)
	faults.Freeze()
	if err := leave(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	release(t, held)
	inLine(t, pool, "r", 1)
	select {
	case next := <-second:
		t.Fatalf("the second one was served: %v", next.err)
	default:
	}
	faults.Unfreeze()
	next := <-second
	if next.err != nil {
		t.Fatal(next.err)
	}
	release(t, next.lease)
}

// TestCloseDoesNotWaitForPlacesThatCannotBeLeft: the client is gone then, and its places are passed over.
func TestCloseDoesNotWaitForPlacesThatCannotBeLeft(t *testing.T) {
	t.Parallel()
	waiter, faults, pool := faulty(t, hurried)
	held := acquire(t, newClient(t, pool, pglease.Config{TTL: time.Hour}), "r")
	leave, behind := twoInLine(t, pool, waiter, newClient(t, pool, pglease.Config{TTL: time.Hour}))
	faults.Freeze()
	if err := leave(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := waiter.Close(t.Context()); err != nil {
		t.Error(err)
	}
	faults.Close()
	handOver(t, held, behind)
}
