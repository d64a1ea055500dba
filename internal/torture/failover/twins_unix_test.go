//go:build unix

package failover_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/internal/torture/failover/servers"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

// TestTwoStandbysOfOneTimeline shows the hole that is documented. Two standbys are promoted without knowing
// of each other, to the same timeline, and both take writes. They hand out the same fence to two leases; a
// report that keeps the lease's id beside the fence still serves only one of the two.
//
//	   primary        one standby                another standby            report
//	1  SIGKILL        promoted, timeline 2       promoted, timeline 2
//	2                 grants f to a lease        grants f to another
//	3                                                                       accepts the one that comes first,
//	                                                                        refuses the other
func TestTwoStandbysOfOneTimeline(t *testing.T) {
	t.Parallel()
	pair := servers.NewPair(t)
	twin := servers.Follow(t, pair.Primary, postgres.Options{Durable: true})
	grantOnce(t, newClient(t, pair.Primary.URL()))
	pair.Replicated(t)
	servers.Caught(t, pair.Primary, twin)
	pair.Fail(t)
	if err := twin.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}

	first, second := tie(t, pair.Standby.URL(), twin.URL())
	if _, err := first.Compare(second); !errors.Is(err, fence.ErrSharedFence) {
		t.Errorf("%v and %v compare: %v", first, second, err)
	}
	store := newStore(t)
	for _, by := range []fence.Token{first, second, first, second} {
		_, err := store.Publish(t.Context(), by, reportstore.Report{ID: report, Body: []byte(by.String()), ExpectedVersion: reportstore.AnyVersion})
		if refused := fence.IsStale(err); refused != (by == second) || (err != nil && !refused) {
			t.Errorf("%v publishes: %v", by, err)
		}
	}
	history, err := store.History(t.Context(), report)
	if err != nil {
		t.Fatal(err)
	}
	if len(history) != 1 || history[0].LeaseID != first.LeaseID() || len(reportstore.Regressions(history)) > 0 {
		t.Errorf("the report's history: %+v", history)
	}
}

// tie has both servers grant until they have granted the same fence.
func tie(t *testing.T, urls ...string) (one, other fence.Token) {
	t.Helper()
	var mu sync.Mutex
	granted := map[int64]fence.Token{}
	var found []fence.Token
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return found != nil || t.Context().Err() != nil
	}
	note := func(token fence.Token) {
		mu.Lock()
		defer mu.Unlock()
		if twin, there := granted[token.Fence()]; there && found == nil {
			found = []fence.Token{twin, token}
		}
		granted[token.Fence()] = token
	}
	var wg sync.WaitGroup
	for _, url := range urls {
		client := newClient(t, url)
		wg.Go(func() {
			for !done() {
				note(grantOnce(t, client))
			}
		})
	}
	wg.Wait()
	if found == nil {
		t.Fatal("no fence was granted by both")
	}
	return found[0], found[1]
}

func grantOnce(t *testing.T, client *pglease.Client) fence.Token {
	t.Helper()
	lease, err := client.TryAcquire(t.Context(), report)
	if err != nil {
		t.Error(err)
		return fence.Token{}
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	return lease.Token()
}
