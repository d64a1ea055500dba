package pglease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// tickets reads the places in line of a resource's tenures, in the order of their fences.
func tickets(t rapid.TB, pool *pgxpool.Pool, resource string) []int64 {
	rows, err := pool.Query(context.Background(), `SELECT coalesce(ticket, 0) FROM pglease.lease_history
		WHERE resource_id = $1 AND fence IS NOT NULL AND ticket IS NOT NULL ORDER BY fence`, resource)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestAThousandWaitersInTwentyProcesses_W2: every one is served once, in order, with as many
// statements for each as when there are few.
func TestAThousandWaitersInTwentyProcesses_W2(t *testing.T) {
	t.Parallel()
	bothWays(t, aThousandWaiters)
}

func aThousandWaiters(t *testing.T, direct bool) {
	t.Helper()
	url := pgleasetest.URL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	holder := newClient(t, pool, pglease.Config{})
	const processes = 20
	each := func(waiters int) float64 {
		resource := fmt.Sprint("with ", waiters)
		held := acquire(t, holder, resource)
		var workers []*worker
		for range processes {
			workers = append(workers, startWorker(t, workerOrder{URL: url, Resource: resource, Waiters: waiters / processes, DirectWake: direct}))
		}
		inLine(t, pool, resource, waiters)
		release(t, held)
		var served int
		var sent int64
		for _, w := range workers {
			r := w.report(t)
			served += r.Served
			sent += r.Statements
		}
		order := tickets(t, pool, resource)
		if served != waiters || len(order) != waiters || !slices.IsSorted(order) || len(slices.Compact(slices.Clone(order))) != waiters {
			t.Errorf("%d waiters: %d served, %d places on record, in order: %v", waiters, served, len(order), slices.IsSorted(order))
		}
		return float64(sent) / float64(waiters)
	}
	crowd := 1000
	if testing.Short() || direct {
		crowd = 300
	}
	few, many := each(100), each(crowd)
	// Each process also sends a few statements of its own: to begin, to listen, to end.
	t.Logf("%.1f statements a hand-over with 100 waiters, %.1f with %d", few, many, crowd)
	if many > 1.5*few || many > 10 {
		t.Errorf("%.1f statements a hand-over with 100 waiters, %.1f with 1,000", few, many)
	}
}

// TestKilledWaitersHoldNobodyUp_W4: a hundred waiting processes are killed, then the resource is
// released.
func TestKilledWaitersHoldNobodyUp_W4(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	holder, live := newClient(t, pool, pglease.Config{TTL: time.Hour}), newClient(t, pool, pglease.Config{TTL: time.Hour})
	held := acquire(t, holder, "r")
	batch, processes := 10, 100
	if testing.Short() {
		processes = 20
	}
	waiters := 0
	for range processes / batch { // not all at once: each needs connections while it starts
		var workers []*worker
		for range batch {
			workers = append(workers, startWorker(t, workerOrder{URL: url, Resource: "r", Waiters: 1}))
			waiters++
		}
		inLine(t, pool, "r", waiters)
		for _, w := range workers {
			w.kill(t)
		}
	}
	waiting := waitFor(t.Context(), live, "r")
	inLine(t, pool, "r", waiters+1)
	for sessions := -1; sessions != 1; { // the server has noticed that the others are gone
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&sessions)
		if err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	release(t, held)
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the next live one was served after %v", took)
	}
	release(t, next.lease)
}

// TestTheLineIsServedInOrder draws who joins, who leaves and when it is released, and judges by the
// history.
func TestTheLineIsServedInOrder(t *testing.T) {
	t.Parallel()
	bothWays(t, theLineIsServedInOrder)
}

func theLineIsServedInOrder(t *testing.T, direct bool) {
	t.Helper()
	pool := pgleasetest.Pool(t)
	clients := make([]*pglease.Client, 4)
	for i := range clients {
		clients[i] = newClient(t, pool, pglease.Config{TTL: time.Hour, DirectWake: direct})
	}
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		resource := fmt.Sprint("run ", run)
		held := acquire(t, clients[0], resource)
		var wg sync.WaitGroup
		for _, patience := range rapid.SliceOfN(rapid.IntRange(0, 60), 200, 200).Draw(rt, "patience in ms, 0 for ever") {
			client := clients[patience%len(clients)]
			wg.Go(func() {
				ctx := t.Context()
				if patience > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Duration(patience)*time.Millisecond)
					defer cancel()
				}
				lease, err := client.Acquire(ctx, resource)
				if err == nil {
					release(t, lease)
				} else if patience == 0 || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Acquire: %v", err)
				}
			})
		}
		<-time.After(time.Duration(rapid.IntRange(0, 50).Draw(rt, "hold in ms")) * time.Millisecond)
		release(t, held)
		wg.Wait()
		if order := tickets(rt, pool, resource); !slices.IsSorted(order) {
			rt.Errorf("served in the order %v", order)
		}
		if r := readRow(t, pool, resource); r.current {
			rt.Errorf("held after all have left: %+v", r)
		}
		inLine(t, pool, resource, 0)
	})
}
