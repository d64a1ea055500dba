package authority_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/internal/authority"
)

// ownServer is a bench on a server of its own.
func ownServer(t *testing.T) bench {
	t.Helper()
	server, err := postgres.Start(t.Context(), postgres.Options{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	pool, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := migrations.Up(t.Context(), pool, migrations.Lease); err != nil {
		t.Fatal(err)
	}
	return benchOn(t, pool)
}

// TestWithAStandbyNobodyIsRousedByAGrant: one that fell asleep before there was a standby to wait for is notified, and
// hears that behind its sleep, which is ended then; a grant that it finds is to be confirmed. No new session sleeps.
func TestWithAStandbyNobodyIsRousedByAGrant(t *testing.T) {
	t.Parallel()
	b := ownServer(t)
	s := b.sleeper(1)
	held := b.granted("r", 2)
	lease := s.joins("r", 3, false)
	asleep := s.falls("r", longer, lease)
	b.exec("ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
	b.exec("SELECT pg_reload_conf()")
	b.commitsWait()
	released := make(chan authority.Handover, 1)
	releasing := b.begin()
	for set := false; !set; { // by the session that releases, before the pool's others
		set = in(t, releasing, "SELECT current_setting('synchronous_standby_names') = 'ghost'")
	}
	if err := releasing.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, next, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: authority.ID{0: 9}})
		if err != nil {
			t.Error(err)
		}
		released <- next
	}()
	const waiting = " FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
	for waits := 0; waits == 0; {
		b.query("SELECT count(*)"+waiting, nil, &waits)
	}
	select {
	case got := <-asleep:
		t.Fatalf("it was roused before the standby had it: %+v", got)
	case <-time.After(50 * time.Millisecond):
	}
	var next authority.Handover
	for done := false; !done; {
		b.exec("SELECT pg_cancel_backend(pid)" + waiting) // the wait for the standby is cut short
		select {
		case next = <-released:
			done = true
		case <-time.After(5 * time.Millisecond):
		}
	}
	got := <-asleep
	if got.err != nil || !got.Roused || got.Slept || !got.Unconfirmed || len(got.Rings) != 1 || got.Rings[0] != (authority.Ring{Ticket: next.Ticket}) {
		t.Errorf("%+v", got)
	}
	if _, err := s.Rousable(t.Context()); err == nil {
		t.Error("a session can be roused")
	}
	answer, err := s.Await(t.Context(), authority.Awaited{Key: s.key, Resources: []string{"r"}, Leases: []authority.ID{lease}, Most: longer})
	if err != nil || len(answer.Grants) == 0 || !answer.Unconfirmed {
		t.Errorf("%+v, %v", answer, err)
	}
}
