package pglease_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/docrights"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// bothWays runs a test with and without DirectWake.
func bothWays(t *testing.T, test func(t *testing.T, direct bool)) {
	t.Helper()
	for name, direct := range map[string]bool{"notified": false, "woken directly": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, direct)
		})
	}
}

// countAwaits counts the waits in the server.
func countAwaits(f *pgleasetest.Faults) *atomic.Int64 {
	var awaits atomic.Int64
	f.BeforeStatement(func(sql string) {
		if statement("Await")(sql) {
			awaits.Add(1)
		}
	})
	return &awaits
}

// asleep tells whether a session of the database has just begun to wait for a grant.
func asleep(t *testing.T, pool *pgxpool.Pool) (asleep bool) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'
		AND clock_timestamp() - query_start < interval '400 ms'`).Scan(&asleep)
	if err != nil {
		t.Fatal(err)
	}
	return asleep
}

// sleeping serves a waiter until its client's session sleeps in the server with another waiter in line, and tells how
// often it did. The caller releases the lease.
func sleeping(t *testing.T, pool *pgxpool.Pool, holder, waiter *pglease.Client, resource string) (held *pglease.Lease, waiting <-chan served, before int) {
	t.Helper()
	for range 300 {
		held, waiting = acquire(t, holder, resource), waitFor(t.Context(), waiter, resource)
		inLine(t, pool, resource, 1)
		if asleep(t, pool) {
			return held, waiting, before
		}
		handOver(t, held, waiting)
		before++
	}
	t.Fatal("its session never slept")
	return nil, nil, 0
}

// handOver releases, and releases what the waiter got.
func handOver(t *testing.T, held *pglease.Lease, waiting <-chan served) {
	t.Helper()
	release(t, held)
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	release(t, next.lease)
}

// listen returns a session that hears what is sent to the one client that waits.
func listen(t *testing.T, pool *pgxpool.Pool) (conn *pgx.Conn, channel string) {
	t.Helper()
	config := pool.Config().ConnConfig
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	if err := conn.QueryRow(t.Context(), "SELECT 'pglease_' || replace(client_id::text, '-', '') FROM pglease.lease_client").Scan(&channel); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "LISTEN "+channel); err != nil {
		t.Fatal(err)
	}
	return conn, channel
}

// TestAClientThatIsServedOftenIsWokenAlone: what it got while its session slept was not notified to anybody.
func TestAClientThatIsServedOftenIsWokenAlone(t *testing.T) {
	t.Parallel()
	waiter, faults, pool := faulty(t, pglease.Config{TTL: time.Hour, PollEvery: time.Hour / 2, DirectWake: true})
	looks := countLooks(faults)
	holder := newClient(t, pool, pglease.Config{TTL: time.Hour})
	held, waiting, _ := sleeping(t, pool, holder, waiter, "r")
	other, channel := listen(t, pool)
	notified := 0
	for range 10 {
		handOver(t, held, waiting)
		var before int
		held, waiting, before = sleeping(t, pool, holder, waiter, "r")
		notified += before
	}
	looked := looks.Load()
	handOver(t, held, waiting)
	execute(t, pool, "SELECT pg_notify('"+channel+"', 'end')")
	for heard := 0; ; heard++ {
		n, err := other.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n.Payload == "end" {
			if heard > notified {
				t.Errorf("%d notifications, and %d hand-overs to one that was awake", heard, notified)
			}
			break
		}
	}
	if looked > 2 {
		t.Errorf("it looked %d times", looked)
	}
}

// TestNoDirectWakeUpIsLost: some clients hand resources on to each other as fast as they can. None waits until it
// looks by itself.
func TestNoDirectWakeUpIsLost(t *testing.T) {
	t.Parallel()
	const clients, times = 3, 200
	url := pgleasetest.URL(t)
	var wg sync.WaitGroup
	var looks, awaits atomic.Int64
	for range clients {
		faults := pgleasetest.NewFaults()
		client := newClient(t, faults.Pool(t, url), pglease.Config{TTL: time.Hour, PollEvery: time.Hour / 2, DirectWake: true})
		faults.BeforeStatement(func(sql string) {
			switch {
			case statement("Await")(sql):
				awaits.Add(1)
			case statement("Watch")(sql) || statement("WatchOne")(sql):
				looks.Add(1)
			}
		})
		for _, resource := range []string{"a", "b"} {
			wg.Go(func() {
				for range times {
					lease, err := client.Acquire(t.Context(), resource)
					if err != nil {
						t.Errorf("Acquire: %v", err)
						return
					}
					release(t, lease)
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d waits in the server, %d looks, %d tenures", awaits.Load(), looks.Load(), 2*clients*times)
	if awaits.Load() < times {
		t.Errorf("%d waits in the server", awaits.Load())
	}
	if looks.Load() > 2*clients*times/20 {
		t.Errorf("%d looks", looks.Load())
	}
}

// TestTooMuchToWaitForIsNotified: many resources, or many waiters.
func TestTooMuchToWaitForIsNotified(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		resources, waiters, left int
	}{
		"resources": {resources: 12, waiters: 12, left: 9},
		"waiters":   {resources: 1, waiters: 262, left: 257},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			waiter, faults, pool := faulty(t, pglease.Config{TTL: time.Hour, PollEvery: time.Hour / 2, DirectWake: true})
			awaits := countAwaits(faults)
			holder := newClient(t, pool, pglease.Config{TTL: time.Hour})
			ctx, cancel := context.WithCancel(t.Context())
			leases, results := make([]*pglease.Lease, c.resources), make(chan served, c.waiters)
			for i := range leases {
				leases[i] = acquire(t, holder, fmt.Sprint("r", i))
			}
			for i := range c.waiters {
				go func() {
					lease, err := waiter.Acquire(ctx, fmt.Sprint("r", i%c.resources))
					results <- served{lease, err}
				}()
			}
			for n := -1; n != c.waiters; {
				if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pglease.lease_waiter").Scan(&n); err != nil {
					t.Fatal(err)
				}
			}
			for i := range c.waiters - c.left {
				release(t, leases[i%c.resources])
				next := <-results
				if next.err != nil {
					t.Fatal(next.err)
				}
				leases[i%c.resources] = next.lease
			}
			if n := awaits.Load(); n > 0 {
				t.Errorf("its session waited in the server %d times", n)
			}
			cancel()
			for range c.left {
				<-results
			}
			for _, lease := range leases {
				release(t, lease)
			}
		})
	}
}

// TestDirectWakeIsOff: nothing of it is sent, and nobody is told of a session to cancel.
func TestDirectWakeIsOff(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, direct bool) {
		waiter, faults, pool := faulty(t, pglease.Config{DirectWake: direct})
		var sent atomic.Int64
		faults.BeforeStatement(func(sql string) {
			for _, word := range []string{"lease_await", "lease_rouse", "client_connection_check_interval", "pg_signal_backend"} {
				if strings.Contains(sql, word) {
					sent.Add(1)
				}
			}
		})
		holder := newClient(t, pool, pglease.Config{})
		for range 3 {
			held, waiting := acquire(t, holder, "r"), waitFor(t.Context(), waiter, "r")
			inLine(t, pool, "r", 1)
			handOver(t, held, waiting)
		}
		var known bool
		err := pool.QueryRow(t.Context(), `SELECT c.session_pid IS NOT NULL FROM pglease.lease_client AS c
			JOIN pg_locks AS l ON l.locktype = 'advisory' AND (l.classid::bigint << 32 | l.objid::bigint) = c.session_key AND l.objsubid = 1
			WHERE coalesce(c.session_pid, l.pid) = l.pid`).Scan(&known)
		if err != nil || known != direct || (sent.Load() > 0) != direct {
			t.Errorf("its session is known to others: %v, %v; it sent %d statements of it", known, err, sent.Load())
		}
	})
}

// TestASessionThatCannotBeRousedIsNotified: because of who else leases in the database. It finds out as the session
// begins, and where they come later, by rings that come behind its waits.
func TestASessionThatCannotBeRousedIsNotified(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"they are there": false, "they come later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgleasetest.Pool(t)
			var log lines
			waiter := newClient(t, pool, pglease.Config{
				TTL: 600 * time.Millisecond, DirectWake: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			if late {
				held, waiting, _ := sleeping(t, pool, newClient(t, pool, pglease.Config{}), waiter, "r")
				handOver(t, held, waiting)
			}
			limited, _ := docrights.Pool(t, pool, "lease")
			stranger := newClient(t, limited, pglease.Config{})
			for n := 0; n < 5 || !strings.Contains(log.String(), "cannot be woken directly"); n++ {
				held, waiting := acquire(t, stranger, "r"), waitFor(t.Context(), waiter, "r")
				inLine(t, pool, "r", 1)
				handOver(t, held, waiting)
			}
			if text := log.String(); strings.Count(text, "cannot be woken directly") != 1 {
				t.Errorf("logged:\n%s", text)
			}
		})
	}
}
