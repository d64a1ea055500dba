package authority_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/internal/authority"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// longer is a wait that no test waits for: one that ends by itself was not woken.
const longer = 20 * time.Second

// sleeper is a client whose session waits in the server.
type sleeper struct {
	bench
	authority.Listener
	client  authority.ID
	key     int64
	process int32
}

func (b bench) sleeper(number byte) sleeper {
	b.Helper()
	s := sleeper{bench: b, client: authority.ID{0: number, 1: 7}, key: int64(number)<<40 | 1}
	var err error
	if s.Listener, err = b.Listen(b.Context(), s.client); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Listener.Close(context.WithoutCancel(b.Context())) })
	if err = s.Lock(b.Context(), s.key); err == nil {
		s.process, err = s.Rousable(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	s.beat(s.process)
	return s
}

// beat tells the others of a process.
func (s sleeper) beat(process int32) {
	s.Helper()
	if err := s.Beat(s.Context(), s.client, authority.Session{Key: s.key, Process: process}, time.Hour); err != nil {
		s.Fatal(err)
	}
}

// joins puts a request of the client into line.
func (s sleeper) joins(resource string, request byte, barging bool) (lease authority.ID) {
	s.Helper()
	lease = authority.ID{0: request, 15: 1}
	answer, err := s.Join(s.Context(), authority.JoinRequest{
		Request: authority.Request{Resource: resource, ID: authority.ID{0: request}, Owner: "next", TTL: ttl, Barging: barging},
		Client:  s.client, Lease: lease, MaxWaiting: 10,
	})
	if err != nil || answer.Outcome != authority.Joined {
		s.Fatal(answer, err)
	}
	return lease
}

type awaiting struct {
	authority.Awaiting
	err error
}

// falls asleep, and returns when it is; the channel has what ended it.
func (s sleeper) falls(resource string, most time.Duration, leases ...authority.ID) <-chan awaiting {
	s.Helper()
	woken := make(chan awaiting, 1)
	go func() {
		answer, err := s.Await(s.Context(), authority.Awaited{Key: s.key, Resources: []string{"other", resource}, Leases: leases, Most: most})
		woken <- awaiting{answer, err}
	}()
	s.asleep(s.process)
	return woken
}

func (b bench) asleep(process int32) {
	b.Helper()
	for asleep := false; !asleep; {
		b.query("SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'", []any{process}, &asleep)
	}
}

// hears is another session that listens for the client.
func (s sleeper) hears() authority.Listener {
	s.Helper()
	l, err := s.Listen(s.Context(), s.client)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { l.Close(context.WithoutCancel(s.Context())) })
	return l
}

// wantSilence checks that nothing was sent to the session before what is sent now.
func (s sleeper) wantSilence(l authority.Listener) {
	s.Helper()
	if err := s.Ring(s.Context(), s.client, authority.Ring{Ticket: 99}); err != nil {
		s.Fatal(err)
	}
	if ring, err := l.Next(s.Context()); err != nil || ring.Ticket != 99 {
		s.Errorf("was notified: %+v, %v", ring, err)
	}
}

// TestAReleaseRousesTheSleeper: it is told of the grant, and nobody is notified.
func TestAReleaseRousesTheSleeper(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.sleeper(1)
	other := s.hears()
	held := b.granted("r", 2)
	lease := s.joins("r", 3, false)
	began := time.Now()
	woken := s.falls("r", longer, authority.ID{9}, lease)
	_, next, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: authority.ID{0: 9}})
	if err != nil || !next.Rung {
		t.Fatal(next, err)
	}
	took := time.Since(began)
	got := <-woken
	if got.err != nil || !got.Roused || len(got.Grants) == 0 || len(got.Rings) > 0 || got.Unconfirmed {
		t.Fatalf("%+v", got)
	}
	if g := got.Grants[0]; g.Token != next.Token || g.Remaining < ttl || g.Remaining > ttl+took {
		t.Errorf("awarded %+v, granted %v", g, next.Token)
	}
	s.wantSilence(other)
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestWhatIsThereAlreadyIsNotSleptOn: what is left of it counts from the call.
func TestWhatIsThereAlreadyIsNotSleptOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.sleeper(1)
	held := b.granted("r", 2)
	lease := s.joins("r", 3, false)
	_, next, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: authority.ID{0: 9}})
	if err != nil || !next.Rung {
		t.Fatal(next, err)
	}
	answer, err := s.Await(t.Context(), authority.Awaited{Key: s.key, Resources: []string{"r"}, Leases: []authority.ID{lease}, Most: longer})
	if err != nil || answer.Roused || answer.Slept || len(answer.Grants) == 0 || answer.Grants[0].Token != next.Token || answer.Grants[0].Remaining > ttl {
		t.Errorf("%+v, %v", answer, err)
	}
	if len(answer.Rings) != 1 || answer.Rings[0].Fence != next.Token.Fence() {
		t.Errorf("rings: %+v", answer.Rings)
	}
}

// rivals hand resources over to one client, which waits in the server again and again, until each has done it so often.
func rivals(s sleeper, often int, rival func(int) error) {
	s.Helper()
	const rivals = 3
	var resources []string
	var leases []authority.ID
	var told [rivals]chan authority.ID
	for i := range rivals {
		resources, told[i] = append(resources, fmt.Sprint("r", i)), make(chan authority.ID, 10)
		for n := range often {
			leases = append(leases, authority.ID{byte(i), byte(n), byte(n >> 8), 1})
		}
	}
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range rivals {
		wg.Go(func() {
			for n := range often {
				if err := handTo(s, resources[i], leases[i*often+n], told[i]); err != nil {
					s.Error(err)
					cancel()
					return
				}
				if rival != nil {
					if err := rival(i); err != nil {
						s.Error(err)
					}
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	slept := 0
	for {
		select {
		case <-done:
			if slept > 1 {
				s.Errorf("%d waits were not ended", slept)
			}
			return
		default:
		}
		answer, err := s.Await(ctx, authority.Awaited{Key: s.key, Resources: resources, Leases: leases, Most: 2 * time.Second})
		if err != nil {
			if ctx.Err() == nil {
				s.Error(err)
			}
			cancel()
			wg.Wait()
			return
		}
		if answer.Slept { // once, when all have been served
			slept++
		}
		for _, g := range answer.Grants {
			told[slices.Index(resources, g.Token.Resource())] <- authority.ID(g.Token.LeaseID())
		}
	}
}

// handTo acquires, has the client join, releases, and returns when the client has been told.
func handTo(s sleeper, resource string, lease authority.ID, told <-chan authority.ID) error {
	mine, theirs := lease, lease
	mine[4], theirs[4] = 1, 2
	answer, err := s.Acquire(s.Context(), authority.Request{Resource: resource, ID: mine, Owner: "w", TTL: ttl, Fresh: true})
	if err != nil || answer.Outcome != authority.Granted {
		return fmt.Errorf("acquire: %v, %w", answer, err)
	}
	_, err = s.Join(s.Context(), authority.JoinRequest{
		Request: authority.Request{Resource: resource, ID: theirs, Owner: "next", TTL: ttl}, Client: s.client, Lease: lease, MaxWaiting: 10,
	})
	if err != nil {
		return err
	}
	_, next, err := s.Release(s.Context(), authority.ReleaseRequest{Lease: answer.Token, Client: authority.ID{0: 9}})
	if err != nil || !next.Rung {
		return fmt.Errorf("release: %+v, %w", next, err)
	}
	for {
		select {
		case <-s.Context().Done():
			return s.Context().Err()
		case <-time.After(longer):
			return fmt.Errorf("the grant of %s was not told", resource)
		case got := <-told:
			if got != lease { // one that came twice
				continue
			}
		}
		_, _, err = s.Release(s.Context(), authority.ReleaseRequest{Lease: next.Token, Client: s.client})
		return err
	}
}

// TestNoGrantIsLostAsOneFallsAsleep: they come while it is awake, arms, looks, sleeps and wakes, two and three at once.
func TestNoGrantIsLostAsOneFallsAsleep(t *testing.T) {
	t.Parallel()
	rivals(newBench(t).sleeper(1), 150, nil)
}

// TestAStrangersCancellationLosesNothing: whenever it comes.
func TestAStrangersCancellationLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.sleeper(1)
	rivals(s, 100, func(int) error {
		for range 5 {
			if _, err := b.pool.Exec(t.Context(), "SELECT pg_cancel_backend($1)", s.process); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestNobodyElseIsCancelled: a session that does not sleep is notified; and a process that another has now goes on
// with what it does.
func TestNobodyElseIsCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.sleeper(1)
	stranger, err := b.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Release()
	process := int32(stranger.Conn().PgConn().PID())
	ended := make(chan error, 1)
	go func() {
		_, err := stranger.Exec(t.Context(), "SELECT pg_sleep(3600)")
		ended <- err
	}()
	b.asleep(process)
	for request, known := range map[byte]int32{10: s.process, 20: process} {
		resource := fmt.Sprint(request)
		s.beat(known)
		held := b.granted(resource, request)
		s.joins(resource, request+1, false)
		_, next, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: authority.ID{0: 9}})
		if err != nil || !next.Rung {
			t.Fatal(next, err)
		}
		if ring, err := s.Next(t.Context()); err != nil || ring.Fence != next.Token.Fence() {
			t.Errorf("heard %+v, %v", ring, err)
		}
	}
	b.asleep(process) // still
	b.exec("SELECT pg_cancel_backend($1)", process)
	if err := <-ended; err == nil {
		t.Error("the stranger was not asleep")
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestARingReachesASleeper: one of a release that only rings, and one that the caller of Promote sends.
func TestARingReachesASleeper(t *testing.T) {
	t.Parallel()
	for name, barging := range map[string]bool{"to try": true, "of a grant": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			s := b.sleeper(1)
			held := b.granted("r", 2)
			lease := s.joins("r", 3, barging)
			woken := s.falls("r", longer, lease)
			var next authority.Handover
			var err error
			if barging {
				_, next, err = b.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: authority.ID{0: 9}})
			} else {
				b.expire("r")
				next, err = b.Promote(t.Context(), "r")
			}
			if err != nil || next.Rung || !next.Sleeps {
				t.Fatal(next, err)
			}
			if err := b.Ring(t.Context(), next.Client, authority.RingOf(next)); err != nil {
				t.Fatal(err)
			}
			got := <-woken
			if got.err != nil || !got.Roused || (len(got.Grants) == 0) != barging || len(got.Rings) != 1 || got.Rings[0].Ticket != next.Ticket {
				t.Errorf("%+v", got)
			}
		})
	}
}

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

// waitsForLock returns when the process waits for an advisory lock.
func (b bench) waitsForLock(process int32) {
	b.Helper()
	for waits := false; !waits; {
		b.query("SELECT count(*) > 0 FROM pg_locks WHERE pid = $1 AND locktype = 'advisory' AND NOT granted", []any{process}, &waits)
	}
}

// begin returns a transaction of its own.
func (b bench) begin() pgx.Tx {
	b.Helper()
	tx, err := b.pool.Begin(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.Context())) })
	return tx
}

func in(t *testing.T, tx pgx.Tx, sql string, args ...any) (yes bool) {
	t.Helper()
	if err := tx.QueryRow(t.Context(), sql, args...).Scan(&yes); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return yes
}

// TestItLooksWhenItCanBeRoused: a grant whose giver found the session awake is found before it sleeps.
func TestItLooksWhenItCanBeRoused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.sleeper(1)
	held := b.granted("r", 2)
	lease := s.joins("r", 3, false)
	tx := b.begin() // of one who looks whether the session sleeps
	if !in(t, tx, "SELECT pg_try_advisory_xact_lock_shared(($1::bigint >> 32)::integer, $2)", s.key, s.process) {
		t.Fatal("it sleeps")
	}
	woken := make(chan awaiting, 1)
	go func() {
		answer, err := s.Await(t.Context(), authority.Awaited{Key: s.key, Resources: []string{"r"}, Leases: []authority.ID{lease}, Most: longer})
		woken <- awaiting{answer, err}
	}()
	b.waitsForLock(s.process)
	s.beat(0) // nobody else will rouse it
	if _, next, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: held, Client: authority.ID{0: 9}}); err != nil || !next.Rung {
		t.Fatal(next, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-woken; got.err != nil || got.Slept || got.Roused || len(got.Grants) == 0 {
		t.Errorf("%+v", got)
	}
}

// TestOneThatIsRousedEarlyWaitsForTheCommit: and for nothing less, however often it is cancelled.
func TestOneThatIsRousedEarlyWaitsForTheCommit(t *testing.T) {
	t.Parallel()
	for name, cancelled := range map[string]int{"once": 0, "and again": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			s := b.sleeper(1)
			held := b.granted("r", 2)
			lease := s.joins("r", 3, false)
			woken := s.falls("r", longer, lease)
			tx := b.begin()
			if !in(t, tx, "SELECT outcome = 'handed_over' AND session_pid = $2 FROM pglease.lease_pass('r', $1::uuid, '')", held.LeaseID().String(), s.process) ||
				!in(t, tx, "SELECT pglease.lease_rouse($1::uuid)", [16]byte(s.client)) {
				t.Fatal("it was not roused")
			}
			b.waitsForLock(s.process)
			for range cancelled {
				b.exec("SELECT pg_cancel_backend($1)", s.process)
				b.waitsForLock(s.process)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := <-woken; got.err != nil || !got.Roused || got.Slept || len(got.Grants) == 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}
