package pglease_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// TestARingIsTheGrant: a waiter of another client that is served sends nothing more before it has its lease.
func TestARingIsTheGrant(t *testing.T) {
	t.Parallel()
	waiter, faults, pool := faulty(t, pglease.Config{})
	holder := newClient(t, pool, pglease.Config{})
	var watching atomic.Bool
	var sent atomic.Int64
	faults.BeforeStatement(func(sql string) {
		if watching.Load() && strings.HasPrefix(sql, "-- name: ") {
			sent.Add(1)
		}
	})
	for range 5 {
		held := acquire(t, holder, "r")
		waiting := waitFor(t.Context(), waiter, "r")
		inLine(t, pool, "r", 1)
		watching.Store(true)
		release(t, held)
		next := <-waiting
		watching.Store(false)
		if next.err != nil {
			t.Fatal(next.err)
		}
		if r := readRow(t, pool, "r"); !r.current || r.fence != next.lease.Token().Fence() || r.lease != next.lease.Token().LeaseID().String() {
			t.Errorf("the waiter has %v, the database %+v", next.lease.Token(), r)
		}
		release(t, next.lease)
	}
	if n := sent.Load(); n > 1 { // one look or beat may fall into the moment
		t.Errorf("it sent %d statements in five hand-overs", n)
	}
}

// TestAHeardGrantIsTrustedFromTheLastLook: the database counts its TTL from the hand-over, the waiter from the
// last moment when it is known not to have been granted yet.
func TestAHeardGrantIsTrustedFromTheLastLook(t *testing.T) {
	t.Parallel()
	const ttl = 20 * time.Second
	pool := pgleasetest.Pool(t)
	holder, waiter := newClient(t, pool, pglease.Config{}), newClient(t, pool, pglease.Config{TTL: ttl})
	held := acquire(t, holder, "r")
	waiting := waitFor(t.Context(), waiter, "r")
	inLine(t, pool, "r", 1)
	joined := time.Now() // or before
	<-time.After(time.Second)
	release(t, held)
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	if left := next.lease.Remaining(); left > ttl-time.Since(joined) {
		t.Errorf("it is trusted for %v, %v after it joined", left, time.Since(joined))
	}
	release(t, next.lease)
}

// TestARingIsBelievedOnlyWithItsProof: whoever may send notifications can make a waiter look, and no more.
func TestARingIsBelievedOnlyWithItsProof(t *testing.T) {
	t.Parallel()
	waiter, faults, pool := faulty(t, pglease.Config{})
	looks := countLooks(faults)
	holder := newClient(t, pool, pglease.Config{})
	held := acquire(t, holder, "r")
	waiting := waitFor(t.Context(), waiter, "r")
	inLine(t, pool, "r", 1)
	forged := fmt.Sprintf("%016x", held.Token().Fence()+1000)
	for _, proof := range []string{
		"repeat('0f', 16)",
		"left(encode(sha256(uuid_send(w.client_id)), 'hex'), 32)",
		"left(encode(sha256(uuid_send(w.request_id)), 'hex'), 32)",
		"replace(w.lease_id::text, '-', '')",
		"left(encode(sha256(uuid_send((SELECT l.lease_id FROM pglease.resource_lease AS l))), 'hex'), 32)",
	} {
		before := looks.Load()
		_, err := pool.Exec(t.Context(), `SELECT pg_notify('pglease_' || replace(w.client_id::text, '-', ''),
			lpad(to_hex(w.ticket), 16, '0') || $1 || `+proof+`) FROM pglease.lease_waiter AS w`, forged)
		if err != nil {
			t.Fatal(err)
		}
		for looks.Load() == before {
			select {
			case got := <-waiting:
				t.Fatalf("with %s it was believed: %v, %v", proof, got.lease, got.err)
			default:
			}
		}
	}
	release(t, held)
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	if r := readRow(t, pool, "r"); r.fence != next.lease.Token().Fence() || r.fence == held.Token().Fence()+1000 {
		t.Errorf("the waiter has %v, the database %+v", next.lease.Token(), r)
	}
	release(t, next.lease)
}

// TestARingOfTheWrongFenceIsFoundOut is of a liar who knows even the secret: the lease that is made of its ring
// is lost with the first renewal.
func TestARingOfTheWrongFenceIsFoundOut(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder := newClient(t, pool, pglease.Config{})
	waiter := newClient(t, pool, pglease.Config{TTL: 3 * time.Second, RenewEvery: 200 * time.Millisecond})
	held := acquire(t, holder, "r")
	waiting := waitFor(t.Context(), waiter, "r")
	inLine(t, pool, "r", 1)
	if _, err := pool.Exec(t.Context(), `SELECT pg_notify('pglease_' || replace(w.client_id::text, '-', ''),
		lpad(to_hex(w.ticket), 16, '0') || $1 || left(encode(sha256(uuid_send(w.lease_id)), 'hex'), 32)) FROM pglease.lease_waiter AS w`,
		fmt.Sprintf("%016x", held.Token().Fence()+1)); err != nil {
		t.Fatal(err)
	}
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	<-next.lease.Done()
	if err := next.lease.Err(); !errors.Is(err, pglease.ErrLost) {
		t.Errorf("ended with %v", err)
	}
	release(t, held)
}
