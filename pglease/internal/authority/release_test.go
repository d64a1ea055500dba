package authority_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/pglease/internal/authority"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// like is the bench by connections with other settings.
func (b bench) like(settings map[string]string) bench {
	b.Helper()
	return benchOn(b.T, pools.Like(b, b.pool, pools.Settings(settings)))
}

// A release that was committed is one, though its ring fails: here, for want of the right to ring.
func TestAReleaseIsOneThoughItsRingFails(t *testing.T) {
	t.Parallel()
	b := benchOn(t, pgleasetest.Pool(t))
	role := "mute_" + b.pool.Config().ConnConfig.Database
	quoted := pgx.Identifier{role}.Sanitize()
	b.exec("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_notify(text, text) FROM PUBLIC")
	b.exec("CREATE ROLE " + quoted)
	b.exec("GRANT USAGE ON SCHEMA pglease TO " + quoted)
	b.exec("GRANT ALL ON ALL TABLES IN SCHEMA pglease TO " + quoted)
	t.Cleanup(func() {
		if _, err := b.pool.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+quoted+"; DROP ROLE "+quoted); err != nil {
			t.Logf("the role stays: %v", err)
		}
	})
	mute := b.like(map[string]string{"role": role})
	held := b.granted("r", 1)
	next := b.waits("r", 2, authority.ID{0: 1})
	end, _, err := mute.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: authority.ID{0: 9}})
	if err != nil || end.Ended != authority.EndReleased {
		t.Errorf("released as %+v, %v", end, err)
	}
	var holder [16]byte
	b.query("SELECT lease_id FROM pglease.resource_lease", nil, &holder)
	if holder != next {
		t.Errorf("%x holds", holder)
	}
}

// TestAReleaseIsOneThoughItsRingIsNotCommitted: its row has come, so it is committed, and who was served is known.
// Commits that notify wait for each other; here, for one that waits for a standby.
func TestAReleaseIsOneThoughItsRingIsNotCommitted(t *testing.T) {
	t.Parallel()
	b := ownServer(t)
	held := b.granted("r", 1)
	next := b.waits("r", 2, authority.ID{0: 1})
	hasty := b.like(map[string]string{"lock_timeout": "100ms", "application_name": "hasty"})
	b.exec("ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
	b.exec("SELECT pg_reload_conf()")
	for names := ""; names == ""; {
		hasty.query("SHOW synchronous_standby_names", nil, &names)
	}
	other := b.like(map[string]string{"application_name": "notifies"})
	first, second := make(chan error, 1), make(chan error, 1)
	var over atomic.Bool
	go func() {
		var err error
		for err == nil && !over.Load() { // until the server has begun to wait for its standby
			_, err = other.pool.Exec(t.Context(), "SELECT pg_notify('other', ''), pg_logical_emit_message(true, '', ''), pg_sleep(0.005)")
		}
		first <- err
	}()
	b.cancelWait("", "notifies")
	var handed authority.Handover
	go func() {
		var err error
		_, handed, err = hasty.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: authority.ID{0: 9}})
		second <- err
	}()
	b.cancelWait("pg_cancel_backend(pid)", "hasty")
	if err := <-second; err != nil || handed.Rung || handed.Token.LeaseID() != next {
		t.Errorf("handed over %+v, %v", handed, err)
	}
	over.Store(true)
	b.cancelWait("pg_cancel_backend(pid)", "notifies")
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// commitsWait returns when commits wait for a standby: when the checkpointer has learned of it, and not only a session.
func (b bench) commitsWait() {
	b.Helper()
	probe := b.like(map[string]string{"application_name": "probe"})
	done := make(chan error, 1)
	var over atomic.Bool
	go func() {
		var err error
		for err == nil && !over.Load() {
			_, err = probe.pool.Exec(b.Context(), "SELECT pg_logical_emit_message(true, '', '')")
		}
		done <- err
	}()
	b.cancelWait("", "probe")
	over.Store(true)
	b.cancelWait("pg_cancel_backend(pid)", "probe")
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// cancelWait waits until a session's commit waits for a standby, and then does something to it.
func (b bench) cancelWait(what, application string) {
	b.Helper()
	for done := 0; done == 0; {
		b.query("SELECT count(*) FROM (SELECT "+what+" FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = $1 OFFSET 0) AS s",
			[]any{application}, &done)
	}
}
