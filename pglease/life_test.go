package pglease_test

import (
	"cmp"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// journal keeps what an observer is told.
type journal struct {
	mu   sync.Mutex
	all  []pglease.Event
	news chan struct{} // closed at the next event
}

func newJournal() *journal { return &journal{news: make(chan struct{})} }

func (j *journal) Observe(e pglease.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, e)
	close(j.news)
	j.news = make(chan struct{})
}

// of returns the events of a kind, and a channel that is closed when there are news.
func (j *journal) of(kind pglease.EventKind) (list []pglease.Event, news <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.all {
		if e.Kind == kind {
			list = append(list, e)
		}
	}
	return list, j.news
}

// await returns when n events of the kind have come.
func (j *journal) await(t *testing.T, kind pglease.EventKind, n int) []pglease.Event {
	t.Helper()
	for {
		list, news := j.of(kind)
		if len(list) >= n {
			return list
		}
		select {
		case <-news:
		case <-t.Context().Done():
			t.Fatalf("%d events %q of %d", len(list), kind, n)
		}
	}
}

// more returns when n more events of the kind than now have come.
func (j *journal) more(t *testing.T, kind pglease.EventKind, n int) []pglease.Event {
	t.Helper()
	before, _ := j.of(kind)
	return j.await(t, kind, len(before)+n)[len(before):]
}

// observed returns a client whose leases are renewed often, and what it tells.
func observed(t *testing.T, pool *pgxpool.Pool, config pglease.Config) (*pglease.Client, *journal) {
	t.Helper()
	j := newJournal()
	config.Observer = j
	config.TTL = cmp.Or(config.TTL, 10*time.Second)
	config.RenewEvery = cmp.Or(config.RenewEvery, config.TTL/50)
	config.PollEvery = cmp.Or(config.PollEvery, 50*time.Millisecond)
	return newClient(t, pool, config), j
}

// wholeLife is everything that happens to a lease: acquired, renewed, waited for, handed over,
// taken over when it expired, described and released. It returns what the waiter told.
func wholeLife(t *testing.T, pool *pgxpool.Pool, config pglease.Config) (waiterEvents *journal) {
	t.Helper()
	config.Owner = "holder"
	holder, renewals := observed(t, pool, config)
	config.Owner = "waiter"
	waiter, events := observed(t, pool, config)

	held := acquire(t, holder, "r")
	if _, err := waiter.TryAcquire(t.Context(), "r"); !errors.Is(err, pglease.ErrHeld) {
		t.Errorf("TryAcquire: %v", err)
	}
	renewals.await(t, pglease.EventRenewed, 2)
	waiting := waitFor(t.Context(), waiter, "r")
	events.await(t, pglease.EventWaiting, 1)
	if d, err := holder.Describe(t.Context(), "r"); err != nil || !d.Held || d.Owner != "holder" || len(d.Line) != 1 || d.Line[0].Owner != "waiter" {
		t.Errorf("Describe: %+v, %v", d, err)
	}
	release(t, held)
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	if next.lease.Token().Fence() <= held.Token().Fence() {
		t.Errorf("fences %d, then %d", held.Token().Fence(), next.lease.Token().Fence())
	}
	events.await(t, pglease.EventRenewed, 2)
	release(t, next.lease)
	if d, err := holder.Describe(t.Context(), "r"); err != nil || d.Held || d.Owner != "waiter" || d.MeanHold <= 0 {
		t.Errorf("Describe: %+v, %v", d, err)
	}

	lost := acquire(t, holder, "expires")
	pgleasetest.ExpireLease(t, pool, "expires", pgleasetest.InSchema(config.Schema))
	taken := acquire(t, waiter, "expires")
	if err := lost.Release(t.Context()); !errors.Is(err, pglease.ErrLost) {
		t.Errorf("Release of a lease that was taken over: %v", err)
	}
	release(t, taken)
	return events
}

func execute(t *testing.T, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// ownServer starts a server for this test alone, with the tables for leases. The pool is a plain
// one.
func ownServer(t *testing.T, options postgres.Options) (*postgres.Server, *pgxpool.Pool) {
	t.Helper()
	server, err := postgres.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, server)
	pool := pools.Open(t, server.URL())
	if err := migrations.Up(t.Context(), pool, migrations.Lease); err != nil {
		t.Fatal(err)
	}
	return server, pool
}

func stopAtEnd(t *testing.T, ends interface{ Stop() error }) {
	t.Helper()
	t.Cleanup(func() {
		if err := ends.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// needs ends a test whose need is not there: it is skipped, or fails where PGLEASE_REQUIRE_ALL says
// that nothing may be missing.
func needs(t *testing.T, missing any) {
	t.Helper()
	if os.Getenv("PGLEASE_REQUIRE_ALL") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}
