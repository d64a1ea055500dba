package pglease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// served is what a waiter got.
type served struct {
	lease *pglease.Lease
	err   error
}

// waitFor acquires in the background.
func waitFor(ctx context.Context, c *pglease.Client, resource string, options ...pglease.AcquireOption) <-chan served {
	result := make(chan served, 1)
	go func() {
		lease, err := c.Acquire(ctx, resource, options...)
		result <- served{lease, err}
	}()
	return result
}

// inLine returns when n wait for the resource.
func inLine(t *testing.T, pool *pgxpool.Pool, resource string, n int) {
	t.Helper()
	for have := -1; have != n; {
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pglease.lease_waiter WHERE resource_id = $1", resource).Scan(&have); err != nil {
			t.Fatal(err)
		}
	}
}

func release(t *testing.T, l *pglease.Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// countLooks counts the statements by which waiters look by themselves.
func countLooks(f *pgleasetest.Faults) *atomic.Int64 {
	var looks atomic.Int64
	f.BeforeStatement(func(sql string) {
		if statement("Watch")(sql) || statement("Promote")(sql) {
			looks.Add(1)
		}
	})
	return &looks
}

// TestReleaseHandsOver_W1: to a waiter of another client by a ring, to one of its own in memory; in
// the releasing commit, so that nobody barges in.
func TestReleaseHandsOver_W1(t *testing.T) {
	t.Parallel()
	other, faults, pool := faulty(t, pglease.Config{})
	client := newClient(t, pool, pglease.Config{})
	looks := countLooks(faults)
	for _, waiter := range []*pglease.Client{other, client} {
		held := acquire(t, client, "r")
		waiting := waitFor(t.Context(), waiter, "r")
		inLine(t, pool, "r", 1)
		release(t, held)
		if _, err := client.TryAcquire(t.Context(), "r"); !errors.Is(err, pglease.ErrHeld) {
			t.Errorf("barged in: %v", err)
		}
		next := <-waiting
		if next.err != nil {
			t.Fatal(next.err)
		}
		if order, err := held.Token().Compare(next.lease.Token()); err != nil || order >= 0 {
			t.Errorf("fences %d, %d", held.Token().Fence(), next.lease.Token().Fence())
		}
		release(t, next.lease)
		if r := readRow(t, pool, "r"); r.current {
			t.Errorf("held after both released: %+v", r)
		}
	}
	if n := looks.Load(); n > 1 { // the one after the ring
		t.Errorf("the waiter looked %d times", n)
	}
}

// TestOneWaiterIsWoken_W2: statements do not grow with the number of waiters.
func TestOneWaiterIsWoken_W2(t *testing.T) {
	t.Parallel()
	for _, waiters := range []int{1, 1000} {
		t.Run(fmt.Sprint(waiters), func(t *testing.T) {
			t.Parallel()
			waiter, faults, pool := faulty(t, pglease.Config{TTL: time.Hour, PollEvery: time.Hour})
			holder := newClient(t, pool, pglease.Config{TTL: time.Hour})
			held := acquire(t, holder, "r")
			ctx, cancel := context.WithCancel(t.Context())
			woken := make(chan served, waiters)
			for range waiters {
				go func() {
					lease, err := waiter.Acquire(ctx, "r")
					woken <- served{lease, err}
				}()
			}
			inLine(t, pool, "r", waiters)
			var statements atomic.Int64
			faults.BeforeStatement(func(sql string) {
				if !statement("Beat")(sql) && !strings.Contains(sql, "ping") {
					statements.Add(1)
				}
			})
			release(t, held)
			first := <-woken
			if first.err != nil {
				t.Fatal(first.err)
			}
			if n := statements.Load(); n > 2 { // the look of the one that was rung
				t.Errorf("%d statements of the waiting client for one hand-over", n)
			}
			select {
			case second := <-woken:
				t.Errorf("another was woken: %v, %v", second.lease, second.err)
			default:
			}
			cancel()
			for range waiters - 1 {
				if w := <-woken; !errors.Is(w.err, pglease.ErrHeld) || !errors.Is(w.err, context.Canceled) {
					t.Fatalf("a cancelled waiter: %v", w.err)
				}
			}
			inLine(t, pool, "r", 0)
			release(t, first.lease)
		})
	}
}

// TestNoWakeUpIsLost_W3: two clients on one key, with no look of their own to fall back on. Each
// release falls anywhere between the other's "it is held" and "I am in line".
func TestNoWakeUpIsLost_W3(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	var wg sync.WaitGroup
	for range 2 {
		client := newClient(t, pool, pglease.Config{TTL: time.Hour, PollEvery: time.Hour})
		wg.Go(func() {
			for range 300 {
				lease, err := client.Acquire(t.Context(), "r")
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				release(t, lease)
			}
		})
	}
	wg.Wait()
}

// TestTheReleaseComesBetween_W3 puts the release exactly there.
func TestTheReleaseComesBetween_W3(t *testing.T) {
	t.Parallel()
	waiter, faults, pool := faulty(t, pglease.Config{TTL: time.Hour, PollEvery: time.Hour})
	holder := newClient(t, pool, pglease.Config{})
	held := acquire(t, holder, "r")
	var once sync.Once
	faults.BeforeStatement(func(sql string) {
		if statement("Join")(sql) {
			once.Do(func() { release(t, held) })
		}
	})
	lease, err := waiter.Acquire(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	release(t, lease)
}

// TestDeadAndLateHeadsArePassedOver_W4_L3: the first is past its life though its session lives, as
// when it is frozen; the second is past its deadline; the third's entry has no client; the fourth
// has left.
func TestDeadAndLateHeadsArePassedOver_W4_L3(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder := newClient(t, pool, pglease.Config{})
	held := acquire(t, holder, "r")
	var cancels []context.CancelFunc
	var dead []<-chan served
	for i := range 4 {
		client := newClient(t, pool, pglease.Config{Owner: fmt.Sprint("dead ", i)})
		ctx, cancel := context.WithCancel(t.Context())
		cancels = append(cancels, cancel)
		dead = append(dead, waitFor(ctx, client, "r"))
		inLine(t, pool, "r", i+1)
	}
	live := waitFor(t.Context(), newClient(t, pool, pglease.Config{}), "r")
	inLine(t, pool, "r", 5)
	cancels[3]()
	<-dead[3]
	for _, sql := range []string{
		`UPDATE pglease.lease_client c SET alive_until = clock_timestamp() FROM pglease.lease_waiter w WHERE w.client_id = c.client_id AND owner_id = 'dead 0'`,
		`UPDATE pglease.lease_waiter SET deadline = clock_timestamp() WHERE owner_id = 'dead 1'`,
		`DELETE FROM pglease.lease_client c USING pglease.lease_waiter w WHERE w.client_id = c.client_id AND owner_id = 'dead 2'`,
	} {
		if tag, err := pool.Exec(t.Context(), sql); err != nil || tag.RowsAffected() != 1 {
			t.Fatalf("%s: %v, %v", sql, tag, err)
		}
	}
	release(t, held)
	next := <-live
	if next.err != nil {
		t.Fatal(next.err)
	}
	release(t, next.lease)
	for i, cancel := range cancels {
		cancel()
		if i < 3 {
			if w := <-dead[i]; w.lease != nil { // it noticed that its place was gone and entered again
				release(t, w.lease)
			}
		}
	}
}

// TestADeadSessionIsADeadWaiter_W4: no silence has to be waited for.
func TestADeadSessionIsADeadWaiter_W4(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder := newClient(t, pool, pglease.Config{})
	held := acquire(t, holder, "r")
	// A waiter of a process that is gone: it beat a moment ago, and its advisory lock is free.
	for _, sql := range []string{
		`INSERT INTO pglease.lease_client VALUES (gen_random_uuid(), 4711, clock_timestamp() + interval '15 seconds')`,
		`INSERT INTO pglease.lease_waiter (resource_id, request_id, client_id, owner_id, ttl, lock_delay, barging, joined_at)
			SELECT 'r', gen_random_uuid(), client_id, 'gone', '1 hour', '0', false, clock_timestamp() FROM pglease.lease_client`,
		`UPDATE pglease.resource_lease SET waiting = waiting + 1, queue_version = queue_version + 1`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	live := waitFor(t.Context(), newClient(t, pool, pglease.Config{}), "r")
	inLine(t, pool, "r", 2)
	release(t, held)
	if next := <-live; next.err != nil {
		t.Error(next.err)
	} else {
		release(t, next.lease)
	}
}

// TestTheListenerComesBack_W5: its session is killed, then nobody can connect for a while; waiters
// are served meanwhile, by looking.
func TestTheListenerComesBack_W5(t *testing.T) {
	t.Parallel()
	waiter, faults, pool := faulty(t, pglease.Config{PollEvery: 100 * time.Millisecond})
	holder := newClient(t, pool, pglease.Config{})
	looks := countLooks(faults)
	listener := func() (pid int) {
		err := pool.QueryRow(t.Context(), `SELECT pid FROM pg_locks l JOIN pglease.lease_client c ON l.locktype = 'advisory'
			AND (l.classid::bigint << 32 | l.objid::bigint) = c.session_key AND l.granted`).Scan(&pid)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		return pid
	}
	for range 3 {
		held := acquire(t, holder, "r")
		waiting := waitFor(t.Context(), waiter, "r")
		inLine(t, pool, "r", 1)
		for listener() == 0 {
			continue
		}
		killed := listener()
		if _, err := pool.Exec(t.Context(), "SELECT pg_terminate_backend($1)", killed); err != nil {
			t.Fatal(err)
		}
		release(t, held) // may fall before the session is back: then the waiter looks
		next := <-waiting
		if next.err != nil {
			t.Fatal(next.err)
		}
		release(t, next.lease)
	}
	if looks.Load() == 0 {
		t.Error("the waiter never looked by itself")
	}
}

func TestWaitersAreServedWhileNobodyListens_W5(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	var refusing atomic.Bool
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		if refusing.Load() {
			return refused
		}
		return nil
	}
	config.MinConns = 2
	restricted, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(restricted.Close)
	said := make(chan pglease.Event, 100)
	waiter := newClient(t, restricted, pglease.Config{PollEvery: 50 * time.Millisecond, Observer: pglease.ObserverFunc(func(e pglease.Event) {
		if e.Kind == pglease.EventPollOnly {
			said <- e
		}
	})})
	refusing.Store(true)
	holder := newClient(t, pool, pglease.Config{})
	for range 3 {
		held := acquire(t, holder, "r")
		waiting := waitFor(t.Context(), waiter, "r")
		inLine(t, pool, "r", 1)
		release(t, held)
		next := <-waiting
		if next.err != nil {
			t.Fatal(next.err)
		}
		release(t, next.lease)
	}
	if e := <-said; !errors.Is(e.Err, refused) {
		t.Errorf("said: %v", e.Err)
	}
	if len(said) > 0 {
		t.Errorf("said %d times more", len(said))
	}
	refusing.Store(false)
}

// TestRingsAreShort_W6: whatever the resource's name, and never a lease id.
func TestRingsAreShort_W6(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder, waiter := newClient(t, pool, pglease.Config{}), newClient(t, pool, pglease.Config{})
	name := strings.Repeat("n", 512)
	held := acquire(t, holder, name)
	waiting := waitFor(t.Context(), waiter, name)
	inLine(t, pool, name, 1)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	var channel string
	if err := conn.QueryRow(t.Context(), "SELECT 'pglease_' || replace(client_id::text, '-', '') FROM pglease.lease_client").Scan(&channel); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "LISTEN "+channel); err != nil {
		t.Fatal(err)
	}
	release(t, held)
	ring, err := conn.Conn().WaitForNotification(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(ring.Payload) != 16 {
		t.Errorf("payload %q", ring.Payload)
	}
	if _, err := conn.Exec(t.Context(), "UNLISTEN *"); err != nil {
		t.Fatal(err)
	}
	release(t, (<-waiting).lease)
}

// TestAnEntryThatDisappearsIsNoticed_W7: the waiter enters again.
func TestAnEntryThatDisappearsIsNoticed_W7(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	holder, waiter := newClient(t, pool, pglease.Config{TTL: time.Second}), newClient(t, pool, pglease.Config{})
	held := acquire(t, holder, "r")
	waiting := waitFor(t.Context(), waiter, "r")
	inLine(t, pool, "r", 1)
	if _, err := pool.Exec(t.Context(), "WITH gone AS (DELETE FROM pglease.lease_waiter) UPDATE pglease.resource_lease SET waiting = 0, queue_version = queue_version + 1"); err != nil {
		t.Fatal(err)
	}
	inLine(t, pool, "r", 1)
	release(t, held)
	release(t, (<-waiting).lease)
}

func TestServedInTheOrderOfComing(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	a, b := newClient(t, pool, pglease.Config{}), newClient(t, pool, pglease.Config{})
	held := acquire(t, a, "r")
	var waiting []<-chan served
	for i := range 20 {
		waiting = append(waiting, waitFor(t.Context(), []*pglease.Client{a, b}[i%2], "r"))
		inLine(t, pool, "r", i+1)
	}
	release(t, held)
	var fences []int64
	for _, w := range waiting {
		next := <-w
		if next.err != nil {
			t.Fatal(next.err)
		}
		fences = append(fences, next.lease.Token().Fence())
		release(t, next.lease)
	}
	if !slices.IsSorted(fences) {
		t.Errorf("fences %v", fences)
	}
}
