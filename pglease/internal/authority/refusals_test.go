package authority_test

import (
	"testing"
	"time"

	"github.com/pglease/pglease/pglease/internal/authority"
)

// Who was refused asks again by a plain read, whose answer says all that the first did.
func TestASecondRefusalIsAPlainRead(t *testing.T) {
	t.Parallel()
	b, statements := tracedBench(t)
	b.send(authority.Request{Resource: "r", ID: authority.ID{0: 1}, Owner: "w", TTL: ttl, LockDelay: time.Hour})
	first := b.fresh("r", 2)
	statements.take()
	second := b.fresh("r", 3)
	if got := statements.take(); got != "Peek" {
		t.Errorf("sent %s", got)
	}
	if second.Outcome != authority.Held || second.Owner != "w" || !second.Token.IsZero() || second.DatabaseTime.Before(first.DatabaseTime) {
		t.Errorf("answered %+v, then %+v", first, second)
	}
	// Both count to the same end, which the lock delay puts off.
	end := first.DatabaseTime.Add(first.Remaining)
	if off := second.DatabaseTime.Add(second.Remaining).Sub(end).Abs(); off > ttl || second.Remaining <= ttl || second.Remaining > first.Remaining {
		t.Errorf("%v remain, then %v", first.Remaining, second.Remaining)
	}
	barging := authority.Request{Resource: "r", ID: authority.ID{0: 4}, Owner: "w", TTL: ttl, Barging: true, Fresh: true}
	if answer := b.send(barging); answer.Outcome != authority.Held {
		t.Errorf("barging: answered %+v", answer)
	}
	if got := statements.take(); got != "Peek" {
		t.Errorf("barging sent %s", got)
	}
}

// The read never ends in a grant, and never keeps from one: what is not held any more is asked for.
func TestAReadThatFindsNoHolderIsFollowedByTheRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(bench)
		sent string
		want authority.Outcome
	}{
		"released": {func(b bench) { b.exec("UPDATE pglease.resource_lease SET ended_at = clock_timestamp()") }, "Peek AcquireFree", authority.Granted},
		"expired":  {func(b bench) { b.expire("r") }, "Peek AcquireFree Acquire", authority.Granted},
		"pruned": {func(b bench) {
			b.exec("ALTER TABLE pglease.resource_lease DISABLE TRIGGER USER")
			b.exec("DELETE FROM pglease.resource_lease")
		}, "Peek AcquireFree Acquire", authority.Granted},
		"with a line": {func(b bench) { b.exec("UPDATE pglease.resource_lease SET ended_at = clock_timestamp(), waiting = 1") }, "Peek AcquireFree Acquire", authority.Queued},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, statements := tracedBench(t)
			b.granted("r", 1)
			b.fresh("r", 2)
			c.end(b)
			statements.take()
			answer := b.fresh("r", 3)
			if got := statements.take(); answer.Outcome != c.want || got != c.sent {
				t.Errorf("answered %q, want %q; sent %s", answer.Outcome, c.want, got)
			}
			if c.want != authority.Granted {
				return
			}
			b.release(answer.Token)
			statements.take()
			b.granted("r", 4)
			if got := statements.take(); got != "AcquireFree" {
				t.Errorf("after a grant, an acquire sent %s", got)
			}
		})
	}
}

// A request that may have been granted before is told so, whatever is remembered of the resource.
func TestARequestSentBeforeIsNotAnsweredByARead(t *testing.T) {
	t.Parallel()
	b, statements := tracedBench(t)
	b.granted("r", 1)
	b.fresh("r", 2)
	statements.take()
	if answer := b.acquire("r", 1); answer.Outcome != authority.Repeated {
		t.Errorf("answered %+v", answer)
	}
	if got := statements.take(); got != "Acquire" {
		t.Errorf("sent %s", got)
	}
}
