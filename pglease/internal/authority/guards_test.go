package authority_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
)

func TestAcquireIsRefusedWhileHeld_I4_I5(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.granted("r", 1)
	answer := b.acquire("r", 2) // the same owner name, another request
	if answer.Outcome != authority.Held || answer.Owner != "w" || answer.Remaining <= 0 || answer.Remaining > ttl {
		t.Errorf("answered %+v", answer)
	}
	if !answer.Token.IsZero() {
		t.Error("a refused caller got the holder's token")
	}
	if got := b.renew(token); len(got) != 1 {
		t.Error("the holder lost its lease")
	}
}

func TestRefusedAcquireWritesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.granted("r", 1)
	before := b.rowVersion("r")
	for request := range byte(5) {
		if b.acquire("r", 2).Outcome != authority.Held || b.fresh("r", 10+request).Outcome != authority.Held {
			t.Error("not refused")
		}
	}
	if after := b.rowVersion("r"); after != before {
		t.Errorf("row version, locker and transaction went from %v to %v", before, after)
	}
}

// rowVersion changes whenever the row is written or locked.
func (b bench) rowVersion(resource string) (v [3]string) {
	b.Helper()
	b.query("SELECT ctid::text, xmin::text, xmax::text FROM pglease.resource_lease WHERE resource_id = $1", []any{resource}, &v[0], &v[1], &v[2])
	return v
}

func TestFenceGrowsWithEachGrant(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var last int64
	for request := range byte(50) {
		token := b.granted("r", request+1)
		if token.Fence() <= last {
			t.Fatalf("fence %d after %d", token.Fence(), last)
		}
		last = token.Fence()
		if request%2 == 0 {
			b.release(token)
		} else {
			b.expire("r")
		}
	}
	if last >= 1<<53 {
		t.Errorf("fence %d is not exact in a double", last)
	}
}

func TestTheSameRequestGetsTheSameLease_U1(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.granted("r", 1)
	answer := b.acquire("r", 1)
	if answer.Outcome != authority.Repeated || answer.Token != token || answer.Remaining > ttl {
		t.Errorf("repeated: %+v, want %v", answer, token)
	}
}

func TestARequestIsGrantedAtMostOnce(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(bench, fence.Token){
		"released":                  func(b bench, token fence.Token) { b.release(token) },
		"expired":                   func(b bench, _ fence.Token) { b.expire("r") },
		"released, then granted":    func(b bench, token fence.Token) { b.release(token); b.release(b.granted("r", 2)) },
		"expired, then granted":     func(b bench, _ fence.Token) { b.expire("r"); b.release(b.granted("r", 2)) },
		"expired, and held by next": func(b bench, _ fence.Token) { b.expire("r"); b.granted("r", 2) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			end(b, b.granted("r", 1))
			if answer := b.acquire("r", 1); answer.Outcome != authority.Spent || !answer.Token.IsZero() {
				t.Errorf("answered %+v", answer)
			}
		})
	}
}

func TestRenewalTouchesOnlyItsOwnLease_I1_I2(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.granted("r", 1)
	b.expire("r")
	if got := b.renew(a); len(got) != 0 {
		t.Error("an expired lease that nobody took was renewed")
	}
	next := b.granted("r", 2)
	before := b.rowVersion("r")
	if got := b.renew(a); len(got) != 0 || b.rowVersion("r") != before {
		t.Error("a renewal touched the next owner's lease")
	}
	b.expire("r")
	before = b.rowVersion("r")
	if got := b.renew(a, next); len(got) != 0 || b.rowVersion("r") != before {
		t.Error("a delayed renewal brought a lease back")
	}
	b.exec("UPDATE pglease.resource_lease SET expires_at = clock_timestamp() + interval '1 minute'")
	b.release(next)
	if got := b.renew(next); len(got) != 0 {
		t.Error("a released lease was renewed")
	}
}

func TestRenewalKeepsTheIdentity_U2(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.granted("r", 1)
	for range 3 { // as often as its replies are lost
		if got := b.renew(token); len(got) != 1 || got[0].Lease != token.LeaseID() || got[0].Remaining > ttl || got[0].Remaining < ttl-time.Second {
			t.Fatalf("renewed: %+v", got)
		}
	}
	if answer := b.acquire("r", 1); answer.Token != token {
		t.Errorf("token %v became %v", token, answer.Token)
	}
}

func TestRenewalNeverMovesTheExpiryBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.granted("r", 1)
	// As after a step back of the database's clock: the expiry lies further off than a TTL.
	b.exec("UPDATE pglease.resource_lease SET expires_at = expires_at + interval '1 hour'")
	if got := b.renew(token); len(got) != 1 || got[0].Remaining < time.Hour {
		t.Errorf("renewed: %+v", got)
	}
}

func TestABatchRenewsWhatItCanAndSkipsTheLocked_L2(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	free, locked, over := b.granted("free", 1), b.granted("locked", 2), b.granted("over", 3)
	b.release(over)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "SELECT FROM pglease.resource_lease WHERE resource_id = 'locked' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if got := b.renew(over, locked, free); len(got) != 1 || got[0].Lease != free.LeaseID() {
		t.Errorf("renewed %+v, want only the free one", got)
	}
	ends, err := b.Ends(t.Context(), []fence.Token{over, locked})
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range ends {
		switch end.Lease {
		case locked.LeaseID():
			if !end.Current {
				t.Errorf("the locked lease is said to be over: %+v", end)
			}
		case over.LeaseID():
			if end.Current || end.Ended != authority.EndReleased {
				t.Errorf("the released lease: %+v", end)
			}
		}
	}
}

func TestAGuardLetsRenewalsPassAndMakesATakeoverWait(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.granted("r", 1)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM pglease.resource_lease WHERE resource_id = 'r' FOR KEY SHARE"); err != nil {
		t.Fatal(err)
	}
	if got := b.renew(token); len(got) != 1 {
		t.Error("the guard held up a renewal")
	}
	b.expire("r")
	if answer := b.acquire("r", 2); answer.Outcome != authority.Held {
		t.Errorf("taken over under a guard: %+v", answer)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.granted("r", 3)
}

func TestReleaseTouchesOnlyItsOwnLease_I3(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.granted("r", 1)
	if ended := b.release(first); ended != authority.EndReleased {
		t.Errorf("first release: %q", ended)
	}
	before := b.rowVersion("r")
	if ended := b.release(first); ended != authority.EndReleased || b.rowVersion("r") != before {
		t.Errorf("second release: %q, row %v -> %v", ended, before, b.rowVersion("r"))
	}
	b.granted("r", 2) // by the same process
	before = b.rowVersion("r")
	if ended := b.release(first); ended != authority.EndReleased || b.rowVersion("r") != before {
		t.Errorf("a delayed release: %q, row %v -> %v", ended, before, b.rowVersion("r"))
	}
	late := b.granted("late", 3)
	b.expire("late")
	if ended := b.release(late); ended != authority.EndExpired {
		t.Errorf("release of an expired lease: %q", ended)
	}
}

func TestEveryTenureIsRecordedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.release(b.granted("r", 1))
	b.granted("r", 2)
	b.expire("r")
	late := b.granted("r", 3)
	b.expire("r")
	b.release(late)
	var n, distinct int
	var how []string
	b.query("SELECT count(*), count(DISTINCT fence), array_agg(ended ORDER BY fence) FROM pglease.lease_history", nil, &n, &distinct, &how)
	if n != 3 || distinct != 3 || how[0] != "released" || how[1] != "expired" || how[2] != "expired" {
		t.Errorf("%d rows, %d fences: %v", n, distinct, how)
	}
}

func TestHistoryCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("UPDATE pglease.installation SET history = false")
	b.release(b.granted("r", 1))
	b.granted("r", 2)
	b.expire("r")
	b.granted("r", 3)
	var n int
	b.query("SELECT count(*) FROM pglease.lease_history", nil, &n)
	if n != 0 {
		t.Errorf("%d rows", n)
	}
}

// TestHistoryCanBePruned: under the setting, for one transaction, and no fence falls by it.
func TestHistoryCanBePruned(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	last := b.granted("r", 1)
	b.release(last)
	b.exec("SET LOCAL pglease.prune = on; DELETE FROM pglease.lease_history WHERE ended_at < clock_timestamp()")
	var n int
	b.query("SELECT count(*) FROM pglease.lease_history", nil, &n)
	if n != 0 {
		t.Errorf("%d rows", n)
	}
	if next := b.granted("r", 2); next.Fence() <= last.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), last.Fence())
	}
}

// TestNobodyMayBreakTheInvariants tries what a hurried operator might type.
func TestNobodyMayBreakTheInvariants(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.release(b.granted("ended", 1))
	b.granted("r", 2)
	for sql, code := range map[string]string{
		"UPDATE pglease.resource_lease SET fence = fence - 1":                      "PGF02",
		"UPDATE pglease.resource_lease SET lease_id = gen_random_uuid()":           "PGF02",
		"UPDATE pglease.resource_lease SET resource_id = resource_id || 'x'":       "PGF02",
		"DELETE FROM pglease.resource_lease WHERE resource_id = 'r'":               "PGF02",
		"TRUNCATE pglease.resource_lease":                                          "PGF03",
		"UPDATE pglease.lease_history SET owner_id = 'somebody else'":              "PGF03",
		"DELETE FROM pglease.lease_history":                                        "PGF03",
		"TRUNCATE pglease.lease_history":                                           "PGF03",
		"UPDATE pglease.installation SET epoch = epoch - interval '1 day'":         "PGF02",
		"DELETE FROM pglease.installation":                                         "PGF02",
		"UPDATE pglease.installation SET generation_base = generation_base - 1":    "PGF02",
		"UPDATE pglease.installation SET grace_generation = grace_generation - 1":  "PGF02",
		"UPDATE pglease.installation SET failover_grace = '0 s'":                   "23514",
		"INSERT INTO pglease.resource_lease SELECT * FROM pglease.resource_lease":  "23505",
		"UPDATE pglease.resource_lease SET ttl = interval '0'":                     "23514",
		"INSERT INTO pglease.installation (id, generation_base) VALUES (false, 0)": "23502",
	} {
		_, err := b.pool.Exec(t.Context(), sql)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != code {
			t.Errorf("%s: %v, want SQLSTATE %s", sql, err, code)
		}
	}
}

func TestARowThatIsMadeAgainStartsAboveItsOldFence(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	old := b.granted("r", 1)
	b.release(old)
	// The floor passes the fence as soon as a millisecond has gone by.
	for b.exec("DELETE FROM pglease.resource_lease l WHERE fence < (SELECT floor FROM pglease.fence_floor)") == 0 {
		continue
	}
	if again := b.granted("r", 2); again.Fence() <= old.Fence() {
		t.Errorf("fence %d after %d", again.Fence(), old.Fence())
	}
	b.exec("INSERT INTO pglease.resource_lease VALUES ('typed', '', gen_random_uuid(), gen_random_uuid(), 1, now(), now(), '1 second', now())")
	var fence, floor int64
	b.query("SELECT l.fence, f.floor FROM pglease.resource_lease l, pglease.fence_floor f WHERE resource_id = 'typed'", nil, &fence, &floor)
	if fence < old.Fence() || fence > floor {
		t.Errorf("a row typed with fence 1 has %d, floor %d", fence, floor)
	}
}
