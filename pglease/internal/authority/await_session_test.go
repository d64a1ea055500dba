package authority_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/internal/authority"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// limited makes a role of the database's name that may lease, and returns a pool of its own.
func (b bench) limited(name string) *pgxpool.Pool {
	b.Helper()
	role := name + "_" + b.pool.Config().ConnConfig.Database
	quoted := pgx.Identifier{role}.Sanitize()
	b.exec("CREATE ROLE " + quoted + " LOGIN PASSWORD 'app'")
	b.Cleanup(func() {
		_, err := b.pool.Exec(context.WithoutCancel(b.Context()), "DROP OWNED BY "+quoted+"; DROP ROLE "+quoted)
		if err != nil {
			b.Logf("the role stays: %v", err)
		}
	})
	b.exec("GRANT USAGE ON SCHEMA pglease TO " + quoted)
	b.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pglease TO " + quoted)
	config := b.pool.Config()
	config.ConnConfig.User, config.ConnConfig.Password = role, "app"
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if err := pool.Ping(b.Context()); err != nil {
		b.Fatal(err)
	}
	return pool
}

// TestARoleThatMayNotCancelNotifies: the sleeper hears of it behind its sleep, and a session that is made with such
// a role about is told that it cannot be roused.
func TestARoleThatMayNotCancelNotifies(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.sleeper(1)
	app := benchOn(t, b.limited("app"))
	held := b.granted("r", 2)
	lease := s.joins("r", 3, false)
	woken := s.falls("r", time.Second, lease)
	_, next, err := app.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: authority.ID{0: 9}})
	if err != nil || !next.Rung {
		t.Fatal(next, err)
	}
	if got := <-woken; got.err != nil || got.Roused || !got.Slept || len(got.Grants) == 0 || len(got.Rings) != 1 || got.Rings[0].Fence != next.Token.Fence() {
		t.Errorf("%+v", got)
	}
	if process, err := s.Rousable(t.Context()); err == nil {
		t.Errorf("a session of a superuser can be roused by %q as %d", "app", process)
	}
	mine, err := app.Listen(t.Context(), s.client)
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close(t.Context())
	if _, err := mine.Rousable(t.Context()); err != nil {
		t.Errorf("a session of the one role that leases: %v", err)
	}
	other := benchOn(t, b.limited("other"))
	if _, err := mine.Rousable(t.Context()); err == nil {
		t.Error("with another role that may lease, and not cancel")
	}
	b.exec("GRANT pg_signal_backend TO " + pgx.Identifier{other.pool.Config().ConnConfig.User}.Sanitize())
	if _, err := mine.Rousable(t.Context()); err != nil {
		t.Errorf("with another role that may lease and cancel: %v", err)
	}
}

// TestASleepersSettings: limits of the role do not end its wait, and it sees what was committed since that began.
func TestASleepersSettings(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{
		"statement_timeout = '100ms'", "lock_timeout = '1ms'", "default_transaction_isolation = 'repeatable read'",
		"default_transaction_isolation = 'serializable'", "default_transaction_read_only = on",
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			at := b.pool.Config().ConnConfig
			b.exec(fmt.Sprintf("ALTER ROLE %s IN DATABASE %s SET %s", at.User, at.Database, setting))
			s := b.sleeper(1)
			answer, err := s.Await(t.Context(), authority.Awaited{Key: s.key, Resources: []string{"r"}, Most: 300 * time.Millisecond})
			if err != nil || answer.Roused || len(answer.Grants) > 0 {
				t.Errorf("with nothing to wait for: %+v, %v", answer, err)
			}
			held := b.granted("r", 2)
			lease := s.joins("r", 3, false)
			woken := s.falls("r", longer, lease)
			if _, _, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: authority.ID{0: 9}}); err != nil {
				t.Fatal(err)
			}
			if got := <-woken; got.err != nil || !got.Roused || len(got.Grants) == 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestADeadSleeperIsPassedOver: its process is gone, and nothing was said to the server.
func TestADeadSleeperIsPassedOver(t *testing.T) {
	t.Parallel()
	plain := pgleasetest.Pool(t)
	config := plain.Config()
	var mu sync.Mutex
	var last net.Conn
	var killed bool
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if killed { // a dead process does not ask the server to cancel what it left
			return nil, net.ErrClosed
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		last = conn
		return conn, err
	}
	dying, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dying.Close)
	if err := dying.Ping(t.Context()); err != nil { // the pool's own connection, before the session's
		t.Fatal(err)
	}
	b := benchOn(t, plain)
	dead, live := benchOn(t, dying).sleeper(1), b.sleeper(2)
	mu.Lock()
	socket := last
	mu.Unlock()
	held := b.granted("r", 2)
	lease := dead.joins("r", 3, false)
	next := live.joins("r", 4, false)
	gone, woken := dead.falls("r", longer, lease), live.falls("r", longer, next)
	mu.Lock()
	killed = true
	mu.Unlock()
	_ = socket.Close()
	began := time.Now()
	for sessions := -1; sessions != 0; {
		b.query("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", []any{dead.process}, &sessions)
	}
	if took := time.Since(began); took > longer/2 {
		t.Errorf("the server noticed after %v", took)
	}
	if got := <-gone; got.err == nil {
		t.Fatalf("%+v", got)
	}
	if _, _, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: authority.ID{0: 9}}); err != nil {
		t.Fatal(err)
	}
	if got := <-woken; got.err != nil || !got.Roused || len(got.Grants) == 0 || authority.ID(got.Grants[0].Token.LeaseID()) != next {
		t.Errorf("%+v", got)
	}
}
