package pglease_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/pglease"
)

// restarts are the ways in which a server goes away and comes back.
var restarts = map[string]func(*testing.T, *postgres.Server){
	"in order": func(*testing.T, *postgres.Server) {},
	"killed": func(t *testing.T, s *postgres.Server) {
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
	},
}

// TestPostgresRestarts_I6: the lease goes on, and so does who waits for it.
func TestPostgresRestarts_I6(t *testing.T) {
	t.Parallel()
	for name, end := range restarts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, pool := ownServer(t, postgres.Options{Durable: true})
			config := pglease.Config{TTL: time.Minute, RenewEvery: 200 * time.Millisecond}
			client, events := observed(t, pool, config)
			waiter, waits := observed(t, pools.Open(t, server.URL()), config)
			lease := acquire(t, client, "r")
			token := lease.Token()
			waiting := waitFor(t.Context(), waiter, "r")
			waits.await(t, pglease.EventWaiting, 1)
			for range 2 {
				events.more(t, pglease.EventRenewed, 2)
				end(t, server)
				if err := server.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			events.more(t, pglease.EventRenewed, 2)
			wantState(t, lease, pglease.Held)
			if r := readRow(t, pools.Open(t, server.URL()), "r"); lease.Token() != token || r.fence != token.Fence() || !r.current {
				t.Errorf("token %v, row %+v", lease.Token(), r)
			}
			releaseAgain(t, lease)
			if next := <-waiting; next.err != nil {
				t.Error(next.err)
			}
		})
	}
}

// TestAReleaseRightAfterARestart_I6: those who wait have no session at that moment that shows that
// they live. One whose place was dropped enters again.
func TestAReleaseRightAfterARestart_I6(t *testing.T) {
	t.Parallel()
	server, pool := ownServer(t, postgres.Options{Durable: true})
	client, _ := observed(t, pool, pglease.Config{TTL: time.Minute})
	waiter, waits := observed(t, pools.Open(t, server.URL()), pglease.Config{TTL: time.Minute})
	for range 3 {
		lease := acquire(t, client, "r")
		before, _ := waits.of(pglease.EventWaiting)
		waiting := waitFor(t.Context(), waiter, "r")
		waits.await(t, pglease.EventWaiting, len(before)+1)
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		releaseAgain(t, lease)
		next := <-waiting
		if next.err != nil {
			t.Fatal(next.err)
		}
		release(t, next.lease)
	}
}

// releaseAgain releases until that is confirmed: the pool may have sessions left that are gone.
func releaseAgain(t *testing.T, l *pglease.Lease) {
	t.Helper()
	for err := l.Release(t.Context()); err != nil; err = l.Release(t.Context()) {
		if errors.Is(err, pglease.ErrLost) {
			t.Fatal(err)
		}
	}
}
