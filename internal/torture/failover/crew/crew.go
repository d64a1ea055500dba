//go:build unix

// Package crew is a number of clients for tests of failovers. They own reports in turn, publish them and
// write down what they are told, with no restart and by one URL, whatever happens to the servers.
package crew

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/torture/failover/servers"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

// patience is how long after a fault everybody has to be at work again, also on a slow machine.
const patience = 2 * time.Minute

// reports are what the clients work on.
var reports = []string{"report/2026-07", "report/2026-08", "report/2026-09"}

// A Grant is one that a client was told of.
type Grant struct {
	Token       fence.Token
	asked, told time.Time
}

// A version is one that a client was told of.
type version struct {
	by     fence.Token
	number int64
	told   time.Time
}

// A Crew is at work from Hire until Dismiss.
type Crew struct {
	stop   context.CancelFunc
	joined sync.WaitGroup
	store  *reportstore.Store

	mu       sync.Mutex
	grants   []Grant
	versions []version
	late     int // writes of earlier owners that were refused
	accepted []string
	errs     map[string]int
}

// Hire puts four clients to work, each with a pool of its own on the URL.
func Hire(tb testing.TB, leasesURL, reportsURL string) *Crew {
	tb.Helper()
	return HireWith(tb, leasesURL, reportsURL, pglease.Config{TTL: 2 * time.Second, PollEvery: 50 * time.Millisecond})
}

// HireWith has the clients made with a configuration.
func HireWith(tb testing.TB, leasesURL, reportsURL string, config pglease.Config) *Crew {
	tb.Helper()
	ctx, stop := context.WithCancel(tb.Context())
	c := &Crew{stop: stop, errs: map[string]int{}}
	for i := range 4 {
		config.Owner = fmt.Sprint("client ", i)
		client, err := pglease.New(ctx, servers.Pool(tb, leasesURL), config)
		if err != nil {
			tb.Fatal(err)
		}
		store, err := reportstore.New(servers.Pool(tb, reportsURL), reportstore.Config{})
		if err != nil {
			tb.Fatal(err)
		}
		c.store = store
		m := &member{crew: c, client: client, store: store, had: map[string]fence.Token{}}
		c.joined.Go(func() { m.work(ctx, i) })
	}
	tb.Cleanup(c.Dismiss) // before the pools close
	return c
}

// Dismiss ends the work.
func (c *Crew) Dismiss() {
	c.stop()
	c.joined.Wait()
}

// A member is one client.
type member struct {
	crew   *Crew
	client *pglease.Client
	store  *reportstore.Store
	had    map[string]fence.Token // its last lease of each report
}

func (m *member) work(ctx context.Context, first int) {
	defer func() { _ = m.client.Close(context.WithoutCancel(ctx)) }()
	for i := first; ctx.Err() == nil; i++ {
		if err := m.turn(ctx, reports[i%len(reports)]); err != nil {
			m.crew.note(err)
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
}

// turn is one ownership: establish, try to write as the owner that this client was before, read, publish,
// release.
func (m *member) turn(ctx context.Context, report string) error {
	asked := time.Now()
	lease, err := m.client.Acquire(ctx, report)
	if err != nil {
		return err
	}
	token := lease.Token()
	m.crew.granted(Grant{token, asked, time.Now()})
	defer func() { m.crew.note(lease.Release(ctx)) }()
	if err := m.store.Establish(ctx, token, report); err != nil {
		return err
	}
	if err := m.writeLate(ctx, report); err != nil {
		return err
	}
	m.had[report] = token
	found, err := m.store.Read(ctx, report)
	if err != nil && !errors.Is(err, reportstore.ErrNotFound) {
		return err
	}
	done, err := m.store.Publish(ctx, token, reportstore.Report{ID: report, Body: []byte(token.String()), ExpectedVersion: found.Version})
	if err != nil {
		return err
	}
	m.crew.published(version{token, done.Version, time.Now()})
	return nil
}

// writeLate publishes under the lease that this client had before. A newer one is established by now.
func (m *member) writeLate(ctx context.Context, report string) error {
	token, had := m.had[report]
	if !had {
		return nil
	}
	_, err := m.store.Publish(ctx, token, reportstore.Report{ID: report, Body: []byte("late"), ExpectedVersion: reportstore.AnyVersion})
	m.crew.mu.Lock()
	defer m.crew.mu.Unlock()
	switch {
	case fence.IsStale(err):
		m.crew.late++
		return nil
	case err == nil:
		m.crew.accepted = append(m.crew.accepted, token.String())
	}
	return err
}

func (c *Crew) granted(g Grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grants = append(c.grants, g)
}

func (c *Crew) published(v version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.versions = append(c.versions, v)
}

func (c *Crew) note(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs[err.Error()]++
}

// Grants are all that a client was told of so far.
func (c *Crew) Grants() []Grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.grants)
}

// Generation is that of the greatest fence that a client was told of. A failover raises it.
func (c *Crew) Generation() (generation int64) {
	const clock = 41 // bits of a fence that tell the time
	for _, g := range c.Grants() {
		generation = max(generation, g.Token.Fence()>>clock)
	}
	return generation
}

// Told is how many versions have been published.
func (c *Crew) Told() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.versions)
}

// More returns when so many more versions have been published.
func (c *Crew) More(tb testing.TB, n int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	for want := c.Told() + n; c.Told() < want; {
		select {
		case <-ctx.Done():
			tb.Fatalf("nothing is published any more: %s", c.said())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// said are the errors that the clients met, the most frequent first.
func (c *Crew) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	texts := slices.SortedFunc(maps.Keys(c.errs), func(a, b string) int { return c.errs[b] - c.errs[a] })
	for i, text := range texts {
		texts[i] = fmt.Sprintf("%d times: %s", c.errs[text], text)
	}
	return strings.Join(texts[:min(len(texts), 20)], "\n")
}
