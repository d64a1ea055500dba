package authority_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
	"github.com/pglease/pglease/pglease/internal/leasedb"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// TestAGrantInAnOldTransactionHasItsFullTTL_T1 would fail with now(), which stands still from the
// start of the transaction.
func TestAGrantInAnOldTransactionHasItsFullTTL_T1(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s, err := schema.New("")
	if err != nil {
		t.Fatal(err)
	}
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	const ttl = 200 * time.Millisecond
	if _, err := tx.Exec(t.Context(), "SELECT pg_sleep(0.4)"); err != nil {
		t.Fatal(err)
	}
	for request := range byte(2) { // makes the row, then finds it expired
		row, err := leasedb.New().Acquire(t.Context(), s.On(tx), leasedb.AcquireParams{
			ResourceID: "r", RequestID: pgtype.UUID{Bytes: [16]byte{request}, Valid: true}, OwnerID: "w", TTL: ttl,
		})
		if err != nil {
			t.Fatal(err)
		}
		if row.Outcome != "granted" || row.Remaining < ttl/4 {
			t.Errorf("%s with %v of %v left", row.Outcome, row.Remaining, ttl)
		}
		if _, err := tx.Exec(t.Context(), "SELECT pg_sleep(0.3)"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReleaseWaitsForTheRowsLock: a row that was changed meanwhile is not where the short release found it.
func TestReleaseWaitsForTheRowsLock(t *testing.T) {
	t.Parallel()
	for holder, want := range map[string]string{
		"SELECT FROM pglease.resource_lease FOR UPDATE":                                 "ReleaseUnawaited",
		"SELECT FROM pglease.resource_lease FOR KEY SHARE":                              "ReleaseUnawaited",
		"UPDATE pglease.resource_lease SET expires_at = expires_at + interval '1 hour'": "ReleaseUnawaited Release",
	} {
		t.Run(holder, func(t *testing.T) {
			t.Parallel()
			b, statements := tracedBench(t)
			token := b.granted("r", 1)
			tx, err := b.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), holder); err != nil {
				t.Fatal(err)
			}
			statements.take()
			ended := make(chan string)
			go func() { ended <- b.release(token) }()
			b.waiting(1)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := <-ended; got != authority.EndReleased {
				t.Errorf("release after a wait: %q", got)
			}
			if got := statements.take(); got != want {
				t.Errorf("sent %s, want %s", got, want)
			}
		})
	}
}

// TestALongReleaseEndsTheRowThatItWaitedFor: it changes the row where it lies, which is elsewhere once another has
// changed it.
func TestALongReleaseEndsTheRowThatItWaitedFor(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"nobody waits": false, "one waits": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			token := b.granted("r", 1)
			if waits {
				b.waits("r", 2, authority.ID{0: 9})
			}
			tx, err := b.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "UPDATE pglease.resource_lease SET expires_at = expires_at + interval '1 hour'"); err != nil {
				t.Fatal(err)
			}
			type answer struct {
				end  authority.End
				next authority.Handover
				err  error
			}
			answers := make(chan answer)
			go func() {
				end, next, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: token, Client: authority.ID{0: 1}})
				answers <- answer{end, next, err}
			}()
			b.waiting(1)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := <-answers
			if got.err != nil || got.end.Ended != authority.EndReleased || got.next.Token.IsZero() == waits {
				t.Errorf("answered %+v", got)
			}
			var current bool
			var fence int64
			err = b.pool.QueryRow(t.Context(), "SELECT ended_at IS NULL, fence FROM pglease.resource_lease").Scan(&current, &fence)
			if err != nil || current != waits || (fence > token.Fence()) != waits {
				t.Errorf("the row is current: %v, with fence %d after %d, %v", current, fence, token.Fence(), err)
			}
		})
	}
}

// waiting returns when n backends of this database wait for a lock.
func (b bench) waiting(n int) {
	b.Helper()
	for have := 0; have != n; {
		b.query("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'", nil, &have)
	}
}

// TestServerIsolationDoesNotMatter_T4: under a stronger default the first conflict makes the
// authority pin READ COMMITTED; no serialization failure reaches the caller.
func TestServerIsolationDoesNotMatter_T4(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"serializable", "repeatable read", "read uncommitted"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			b := benchOn(t, pools.Open(t, pgleasetest.URL(t), pools.Conns(20),
				pools.Settings(map[string]string{"default_transaction_isolation": level})))
			b.release(b.granted("r", 255))
			var wg sync.WaitGroup
			for client := range byte(20) {
				wg.Go(func() { b.contend(t, client) })
			}
			wg.Wait()
			var tenures, fences int
			b.query("SELECT count(*), count(DISTINCT fence) FROM pglease.lease_history", nil, &tenures, &fences)
			if tenures != 101 || fences != tenures {
				t.Errorf("%d tenures with %d fences, want 101", tenures, fences)
			}
		})
	}
}

// contend acquires and releases five times, trying until it is granted.
func (b bench) contend(t *testing.T, client byte) {
	t.Helper()
	for round := range byte(5) {
		r := authority.Request{Resource: "r", Owner: "w", TTL: ttl}
		for try := 0; ; try++ {
			r.ID = authority.ID{client, round, byte(try), byte(try >> 8), 1}
			answer, err := b.Acquire(t.Context(), r)
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			if answer.Outcome != authority.Granted {
				continue
			}
			if _, err := b.Renew(t.Context(), []fence.Token{answer.Token}, 0); err != nil {
				t.Errorf("Renew: %v", err)
			}
			if ended, _, err := b.Release(t.Context(), authority.ReleaseRequest{Lease: answer.Token}); err != nil || ended.Ended != authority.EndReleased {
				t.Errorf("Release: %+v, %v", ended, err)
			}
			break
		}
	}
}

// TestTheTableStaysSmallUnderRenewal_T7 runs alone: a transaction that is open anywhere in the
// server, as other tests have, keeps dead versions from being cleaned away.
func TestTheTableStaysSmallUnderRenewal_T7(t *testing.T) { //nolint:paralleltest // see above
	b := newBench(t)
	var tokens []fence.Token
	for i := range byte(5) {
		tokens = append(tokens, b.granted(fmt.Sprint("r", i), i+1))
	}
	for range 4000 { // 20,000 renewals
		if got := b.renew(tokens...); len(got) != len(tokens) {
			t.Fatalf("renewed %d of %d", len(got), len(tokens))
		}
	}
	var pages, indexPages int64
	b.query("SELECT pg_relation_size('pglease.resource_lease') / 8192, pg_indexes_size('pglease.resource_lease') / 8192", nil, &pages, &indexPages)
	if pages > 4 || indexPages > 8 {
		t.Errorf("20,000 renewals of 5 rows left %d pages and %d index pages", pages, indexPages)
	}
}

// TestNamesAreComparedByteForByte_T8: byte for byte, and survive the round trip.
func TestNamesAreComparedByteForByte_T8(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	names := []string{
		"r", "R", "r ", " r", "r'", `r"`, `r\`, "r;--", "r%", "r_", "é", "e\u0301", "\u212b", "\u00c5", "🔒", "\u200b",
		strings.Repeat("n", fence.MaxResourceLength), strings.Repeat("n", fence.MaxResourceLength-1),
	}
	fences := map[string]fence.Token{}
	for i, name := range names {
		fences[name] = b.granted(name, byte(i+1)) // none is another's
	}
	for name, token := range fences {
		if token.Resource() != name {
			t.Errorf("%q came back as %q", name, token.Resource())
		}
		if parsed, err := fence.Parse(token.String()); err != nil || parsed != token {
			t.Errorf("token of %q: %v, %v", name, parsed, err)
		}
		if ended := b.release(token); ended != authority.EndReleased {
			t.Errorf("release of %q: %q", name, ended)
		}
	}
}

// TestASyncCommitIsNotEnoughForAGrant: with it a crash of the server would take the fence back.
func TestASyncCommitIsNotEnoughForAGrant(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgleasetest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	conn, err := pgx.ConnectConfig(t.Context(), config.ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // end of the test
	s, err := schema.New("")
	if err != nil {
		t.Fatal(err)
	}
	row, err := leasedb.New().Acquire(t.Context(), s.On(conn), leasedb.AcquireParams{
		ResourceID: "r", RequestID: pgtype.UUID{Bytes: [16]byte{1}, Valid: true}, OwnerID: "w", TTL: ttl,
	})
	if err != nil {
		t.Fatal(err)
	}
	var after string
	if err := conn.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&after); err != nil {
		t.Fatal(err)
	}
	if row.SynchronousCommit != "on" || after != "off" {
		t.Errorf("the grant ran with %s, and left the session with %s", row.SynchronousCommit, after)
	}
}

func TestAbandonedRequestsAreNeverGranted(t *testing.T) {
	t.Parallel()
	for when, prepare := range map[string]func(bench){
		"before the row exists": func(bench) {},
		"while free":            func(b bench) { b.release(b.granted("r", 9)) },
		"while expired":         func(b bench) { b.granted("r", 9); b.expire("r") },
		"while held by another": func(b bench) { b.granted("r", 9) },
		"after its own grant":   func(b bench) { b.granted("r", 1) },
		"after its own expiry":  func(b bench) { b.granted("r", 1); b.expire("r") },
		"after its own release": func(b bench) { b.release(b.granted("r", 1)) },
	} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			prepare(b)
			for range 2 {
				if _, err := b.Abandon(t.Context(), "r", authority.ID{0: 1}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := b.Abandon(t.Context(), "r", authority.ID{0: 2}); err != nil { // moves the mark in the row on
				t.Fatal(err)
			}
			b.exec("UPDATE pglease.resource_lease SET expires_at = clock_timestamp() WHERE ended_at IS NULL")
			for _, request := range []byte{1, 2} {
				if answer := b.acquire("r", request); answer.Outcome != authority.Spent {
					t.Errorf("request %d: %+v", request, answer)
				}
			}
			b.granted("r", 3)
		})
	}
}
