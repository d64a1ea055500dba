package authority_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
	"github.com/pglease/pglease/pglease/internal/mint"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// The statements for the common case are shorter than those that know every case. Each guard that
// they have must turn into a question to the longer one, never into an answer.

// sent notes the name of each statement.
type sent struct {
	mu    sync.Mutex
	names []string
}

func (s *sent) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.add(data.SQL)
	return ctx
}

func (s *sent) add(sql string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name, ok := strings.CutPrefix(sql, "-- name: "); ok {
		s.names = append(s.names, strings.Fields(name)[0])
	}
}

func (s *sent) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *sent) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	s.add(data.SQL)
}

func (s *sent) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (s *sent) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *sent) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := strings.Join(s.names, " ")
	s.names = nil
	return names
}

func tracedBench(t *testing.T) (bench, *sent) {
	t.Helper()
	statements := &sent{}
	pool := pools.Open(t, pgleasetest.URL(t), func(c *pgxpool.Config) { c.ConnConfig.Tracer = statements })
	return benchOn(t, pool), statements
}

func TestAcquireAndReleaseAreOneStatementEach(t *testing.T) {
	t.Parallel()
	b, statements := tracedBench(t)
	b.release(b.granted("r", 1)) // makes the row
	statements.take()
	token := b.granted("r", 2)
	if got := statements.take(); got != "AcquireFree" {
		t.Errorf("acquire sent %s", got)
	}
	if answer := b.fresh("r", 3); answer.Outcome != authority.Held || answer.Owner != "w" || answer.Remaining <= 0 || !answer.Token.IsZero() {
		t.Errorf("answered %+v", answer)
	}
	if got := statements.take(); got != "AcquireFree Peek" {
		t.Errorf("a refused acquire sent %s", got)
	}
	b.release(token)
	if got := statements.take(); got != "ReleaseUnawaited" {
		t.Errorf("release sent %s", got)
	}
}

func TestTheShortAcquireGrantsOnlyWhatWasReleased(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(bench)
		want    authority.Outcome
	}{
		"no row":                  {func(bench) {}, authority.Granted},
		"expired":                 {func(b bench) { b.granted("r", 1); b.expire("r") }, authority.Granted},
		"in its lock delay":       {lockDelayed, authority.Held},
		"somebody waits":          {func(b bench) { b.release(b.granted("r", 1)); b.exec("UPDATE pglease.resource_lease SET waiting = 1") }, authority.Queued},
		"granted to this request": {func(b bench) { b.granted("r", 9) }, authority.Held}, // and so was not fresh
		"granted, then released":  {func(b bench) { b.release(b.granted("r", 9)) }, authority.Spent},
		"granted long ago":        {func(b bench) { b.release(b.granted("r", 9)); b.release(b.granted("r", 1)) }, authority.Spent},
		"abandoned just now":      {func(b bench) { b.release(b.granted("r", 1)); b.abandon("r", 9) }, authority.Spent},
		"abandoned before":        {func(b bench) { b.release(b.granted("r", 1)); b.abandon("r", 9); b.abandon("r", 8) }, authority.Spent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			c.prepare(b)
			if answer := b.fresh("r", 9); answer.Outcome != c.want {
				t.Errorf("answered %q, want %q", answer.Outcome, c.want)
			}
		})
	}
}

func lockDelayed(b bench) {
	b.release(b.granted("r", 1))
	b.send(authority.Request{Resource: "r", ID: authority.ID{0: 2}, Owner: "w", TTL: ttl, LockDelay: time.Hour})
	b.expire("r")
}

// lease is the current or last lease of a resource.
func (b bench) lease(resource string) (id string) {
	b.Helper()
	b.query("SELECT lease_id::text FROM pglease.resource_lease WHERE resource_id = $1", []any{resource}, &id)
	return id
}

func (b bench) abandon(resource string, request byte) {
	b.Helper()
	if _, err := b.Abandon(b.Context(), resource, authority.ID{0: request}); err != nil {
		b.Fatalf("Abandon: %v", err)
	}
}

// TestALockedRowIsNotWaitedFor: neither statement of an acquire may, and under the lock of a guard
// nothing is granted.
func TestALockedRowIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{"FOR UPDATE", "FOR KEY SHARE"} {
		t.Run(lock, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.release(b.granted("r", 1))
			tx, err := b.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context())
			if _, err := tx.Exec(t.Context(), "SELECT FROM pglease.resource_lease "+lock); err != nil {
				t.Fatal(err)
			}
			if answer := b.fresh("r", 2); answer.Outcome != authority.Held || answer.Owner != "" {
				t.Errorf("answered %+v", answer)
			}
		})
	}
}

func TestTheShortReleaseLeavesTheRestToTheLong(t *testing.T) {
	t.Parallel()
	b, statements := tracedBench(t)
	late := b.granted("late", 1)
	b.expire("late")
	if ended := b.release(late); ended != authority.EndExpired {
		t.Errorf("an expired lease: %q", ended)
	}
	awaited := b.granted("awaited", 2)
	b.waits("awaited", 3, authority.ID{0: 1})
	if renewals := b.renew(awaited); len(renewals) != 1 || !renewals[0].Awaited {
		t.Errorf("a renewal does not tell that somebody waits: %+v", renewals)
	}
	statements.take()
	_, next, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: awaited, Unawaited: true})
	if err != nil || next.Request != (authority.ID{0: 3}) || next.Token.IsZero() {
		t.Errorf("not handed over: %+v, %v", next, err)
	}
	if got := statements.take(); got != "ReleaseUnawaited Release" {
		t.Errorf("sent %s", got)
	}
	if _, _, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: next.Token}); err != nil {
		t.Fatal(err)
	}
	if got := statements.take(); got != "Release" {
		t.Errorf("sent %s", got)
	}
}

// TestTheSearchOfALineBeginsAfterTheServed: whoever was served or dropped is never looked at again,
// and whoever still waits is never passed over.
func TestTheSearchOfALineBeginsAfterTheServed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.granted("r", 1)
	client, dead := authority.ID{0: 1}, authority.ID{0: 2}
	if err := b.Beat(t.Context(), client, authority.Session{}, time.Minute); err != nil {
		t.Fatal(err)
	}
	tickets := map[byte]int64{}
	for request, c := range []struct {
		client  authority.ID
		barging bool
		owner   string
	}{{dead, false, "w"}, {client, false, "w"}, {client, true, "w"}, {client, false, "named"}, {client, false, "w"}} {
		answer, err := b.Join(t.Context(), authority.JoinRequest{
			Request: authority.Request{Resource: "r", ID: authority.ID{0: byte(10 + request)}, Owner: c.owner, TTL: ttl, Barging: c.barging},
			Client:  c.client, MaxWaiting: 10,
		})
		if err != nil {
			t.Fatal(err)
		}
		tickets[byte(10+request)] = answer.Ticket
	}
	served := func(want int64) {
		t.Helper()
		var got int64
		b.query("SELECT served FROM pglease.resource_lease", nil, &got)
		if got != want {
			t.Errorf("served up to %d, want %d", got, want)
		}
	}
	next := func(successor string, want byte) {
		t.Helper()
		_, next, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: token, Successor: successor})
		if err != nil || next.Request != (authority.ID{0: want}) {
			t.Fatalf("%d was next, want %d: %v", next.Request[0], want, err)
		}
		token = next.Token
	}
	served(0)
	next("", 11) // past the dead
	served(tickets[11])
	next("named", 13) // past the barging, which stays
	served(tickets[11])
	next("", 12) // which is told, and stays
	served(tickets[11])
	answer := b.send(authority.Request{Resource: "r", ID: authority.ID{0: 12}, Owner: "w", TTL: ttl, Barging: true, Ticket: tickets[12]})
	if answer.Outcome != authority.Granted {
		t.Fatalf("barging: %+v", answer)
	}
	token = answer.Token
	next("", 14)
	served(tickets[14])
}

// TestAGrantThatAFailoverLostIsNotSaidToBeTaken: of a lease without a row, and of one whose row is an
// older tenure's, it is only known that they are over.
func TestAGrantThatAFailoverLostIsNotSaidToBeTaken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	older := b.granted("older", 1)
	taken := b.granted("taken", 2)
	b.release(taken)
	b.granted("taken", 3)
	lost := []fence.Token{
		mint.Token("older", older.Fence()+1, authority.ID{0: 1}).(fence.Token),
		mint.Token("no row", older.Fence(), authority.ID{0: 2}).(fence.Token),
	}
	ends, err := b.Ends(t.Context(), append(lost, taken))
	if err != nil || len(ends) != 3 {
		t.Fatal(ends, err)
	}
	for _, end := range ends {
		if end.Current || end.Taken != (end.Lease == taken.LeaseID()) {
			t.Errorf("%+v", end)
		}
	}
}

// TestEveryGrantWaitsForAGuard: the guard's weak lock keeps every statement that could grant the
// resource to another from doing so.
func TestEveryGrantWaitsForAGuard(t *testing.T) {
	t.Parallel()
	next := authority.Request{Resource: "r", ID: authority.ID{0: 9}, Owner: "next", TTL: ttl}
	joined := authority.JoinRequest{Request: next, Client: authority.ID{0: 1}, MaxWaiting: 10}
	inLine := func(ctx context.Context, b bench) error {
		if _, err := b.Join(ctx, joined); err != nil {
			return err
		}
		return b.Beat(ctx, joined.Client, authority.Session{}, time.Minute)
	}
	expire := func(ctx context.Context, b bench) error {
		_, err := b.pool.Exec(ctx, "UPDATE pglease.resource_lease SET expires_at = clock_timestamp()")
		return err
	}
	for name, c := range map[string]struct {
		prepare func(context.Context, bench) error
		grant   func(context.Context, bench, fence.Token) error
	}{
		"acquire": {expire, func(ctx context.Context, b bench, _ fence.Token) error { _, err := b.Acquire(ctx, next); return err }},
		"acquire what was broken": {
			func(ctx context.Context, b bench) error {
				_, err := b.pool.Exec(ctx, "UPDATE pglease.resource_lease SET ended_at = clock_timestamp()")
				return err
			},
			func(ctx context.Context, b bench, _ fence.Token) error {
				r := next
				r.Fresh = true
				_, err := b.Acquire(ctx, r)
				return err
			},
		},
		"join": {expire, func(ctx context.Context, b bench, _ fence.Token) error { _, err := b.Join(ctx, joined); return err }},
		"promote": {
			func(ctx context.Context, b bench) error {
				return errors.Join(inLine(ctx, b), expire(ctx, b))
			},
			func(ctx context.Context, b bench, _ fence.Token) error { _, err := b.Promote(ctx, "r"); return err },
		},
		"hand over": {inLine, func(ctx context.Context, b bench, held fence.Token) error {
			_, _, err := b.Release(ctx, authority.ReleaseRequest{Lease: held})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			held := b.granted("r", 1)
			if err := c.prepare(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			tx, err := b.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "SELECT FROM pglease.resource_lease FOR KEY SHARE"); err != nil {
				t.Fatal(err)
			}
			limited, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_ = c.grant(limited, b, held) // refused, or it waits until the context ends
			if b.lease("r") != held.LeaseID().String() {
				t.Error("granted under a guard")
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c.grant(t.Context(), b, held); err != nil {
				t.Error(err)
			}
			if b.lease("r") == held.LeaseID().String() {
				t.Error("not granted after the guard either: the test shows nothing")
			}
		})
	}
}
