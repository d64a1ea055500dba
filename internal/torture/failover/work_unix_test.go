//go:build unix

package failover_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/torture/failover/servers"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

const report = "report/2026-07"

// A grant is one that a client was told of.
type grant struct {
	token       fence.Token
	asked, told time.Time
}

// A version is one that a client was told of.
type version struct {
	by     fence.Token
	number int64
}

// A crew is a number of clients that own the report in turn, publish it, and write down what they are told.
type crew struct {
	stop   context.CancelFunc
	joined sync.WaitGroup
	store  *reportstore.Store

	mu       sync.Mutex
	grants   []grant
	versions []version
	errs     map[string]int
}

// hire puts clients to work, each with a pool of its own on the URL.
func hire(t *testing.T, leasesURL, reportsURL string) *crew {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &crew{stop: stop, errs: map[string]int{}}
	for i := range 4 {
		client, err := pglease.New(ctx, servers.Pool(t, leasesURL), pglease.Config{
			Owner: fmt.Sprint("client ", i), TTL: 2 * time.Second, PollEvery: 50 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		store, err := reportstore.New(servers.Pool(t, reportsURL), reportstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		c.store = store
		c.joined.Go(func() {
			defer func() { _ = client.Close(context.WithoutCancel(ctx)) }()
			for ctx.Err() == nil {
				if err := c.turn(ctx, client, store); err != nil {
					c.note(err)
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	t.Cleanup(c.dismiss)
	return c
}

func (c *crew) dismiss() {
	c.stop()
	c.joined.Wait()
}

func (c *crew) note(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs[err.Error()]++
}

// turn is one ownership: establish, read, publish, release.
func (c *crew) turn(ctx context.Context, client *pglease.Client, store *reportstore.Store) error {
	asked := time.Now()
	lease, err := client.Acquire(ctx, report)
	if err != nil {
		return err
	}
	token := lease.Token()
	c.mu.Lock()
	c.grants = append(c.grants, grant{token, asked, time.Now()})
	c.mu.Unlock()
	defer func() { c.note(lease.Release(ctx)) }()
	if err := store.Establish(ctx, token, report); err != nil {
		return err
	}
	found, err := store.Read(ctx, report)
	if err != nil && !errors.Is(err, reportstore.ErrNotFound) {
		return err
	}
	done, err := store.Publish(ctx, token, reportstore.Report{ID: report, Body: []byte(token.String()), ExpectedVersion: found.Version})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.versions = append(c.versions, version{token, done.Version})
	return nil
}

func (c *crew) told() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.versions)
}

// more returns when so many more versions have been published.
func (c *crew) more(t *testing.T, n int) {
	t.Helper()
	for want := c.told() + n; c.told() < want; {
		if t.Context().Err() != nil {
			t.Fatalf("nothing is published any more: %v", c.errs)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// wantOrder checks that no fence was handed out twice, and that each is greater than all that anybody had
// been told of before it was asked for.
func wantOrder(t *testing.T, grants []grant) {
	t.Helper()
	leases := map[int64]fence.LeaseID{}
	for _, g := range grants {
		number, id := g.token.Fence(), g.token.LeaseID()
		if other, twice := leases[number]; twice && other != id {
			t.Errorf("fence %d was handed out to lease %s and to lease %s", number, other, id)
		}
		leases[number] = id
		for _, before := range grants {
			if before.told.Before(g.asked) && before.token.Fence() >= number {
				t.Errorf("fence %d was followed by %d", before.token.Fence(), number)
			}
		}
	}
}

// wantSound checks the report's own history: no older owner wrote over a newer one's work, each version was
// written under a grant, and all that a client was told of is there.
func (c *crew) wantSound(t *testing.T) {
	t.Helper()
	history, err := c.store.History(t.Context(), report)
	if err != nil {
		t.Fatal(err)
	}
	if stale := reportstore.Regressions(history); len(stale) > 0 {
		t.Errorf("an older owner wrote over a newer one's work: %+v", stale)
	}
	granted := map[int64]fence.LeaseID{}
	for _, g := range c.grants {
		granted[g.token.Fence()] = g.token.LeaseID()
	}
	for _, v := range history {
		if granted[v.Fence] != v.LeaseID {
			t.Errorf("version %d was written under fence %d, lease %s, of which nobody was told", v.Number, v.Fence, v.LeaseID)
		}
	}
	for _, v := range c.versions {
		if v.number > int64(len(history)) || history[v.number-1].Fence != v.by.Fence() {
			t.Errorf("version %d of %v was told to its writer, and is not there", v.number, v.by)
		}
	}
}

// known reads the ids of all leases that the server has granted.
func known(t *testing.T, url string) map[string]bool {
	t.Helper()
	ids := map[string]bool{}
	for _, id := range servers.Value[[]string](t, url, `SELECT array(SELECT lease_id::text FROM pglease.lease_history WHERE lease_id IS NOT NULL
		UNION SELECT lease_id::text FROM pglease.resource_lease)`) {
		ids[id] = true
	}
	return ids
}

// repeats is how often something is repeated: twice, or PGLEASE_REPEAT times.
func repeats(t *testing.T) int {
	t.Helper()
	n := 2
	if text := os.Getenv("PGLEASE_REPEAT"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	return n
}
