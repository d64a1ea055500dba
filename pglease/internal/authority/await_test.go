package authority_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/internal/authority"
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
			if err := b.Ring(t.Context(), next.Client, authority.RingOf(next, 0)); err != nil {
				t.Fatal(err)
			}
			got := <-woken
			if got.err != nil || !got.Roused || (len(got.Grants) == 0) != barging || len(got.Rings) != 1 || got.Rings[0].Ticket != next.Ticket {
				t.Errorf("%+v", got)
			}
		})
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
				!in(t, tx, "SELECT pglease.lease_rouse($1::uuid)", s.client) {
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
