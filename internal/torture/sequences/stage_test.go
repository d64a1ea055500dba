package sequences_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
	"github.com/pglease/pglease/reportstore"
)

// july is the report that everything here is about.
const july = "report/2026-07"

// isStatement matches the generated statement of that name.
func isStatement(name string) func(string) bool {
	return func(sql string) bool { return strings.Contains(sql, "-- name: "+name+" ") }
}

func isRing(sql string) bool { return strings.Contains(sql, "pg_notify") }

// A stage is what a test plays on: two databases, and an honest look into each.
type stage struct {
	report                string // and the resource of the same name
	leasesURL, reportsURL string
	leases                *pgxpool.Pool
	reports               *reportstore.Store
	lost                  fence.Token // a grant that a failover took from the authority, if there is one
}

// newStage makes both databases on the server that the package's tests share.
func newStage(t *testing.T) *stage {
	t.Helper()
	return stageOn(t, pgleasetest.URL(t), pgleasetest.URL(t, migrations.Report))
}

func stageOn(t *testing.T, leasesURL, reportsURL string) *stage {
	t.Helper()
	s := &stage{report: july, leasesURL: leasesURL, reportsURL: reportsURL, leases: poolOf(t, leasesURL)}
	s.reports = storeOf(t, poolOf(t, reportsURL))
	return s
}

func poolOf(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func storeOf(t *testing.T, pool *pgxpool.Pool) *reportstore.Store {
	t.Helper()
	store, err := reportstore.New(pool, reportstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func newClient(t *testing.T, pool *pgxpool.Pool, config pglease.Config) *pglease.Client {
	t.Helper()
	client, err := pglease.New(t.Context(), pool, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		if err := client.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return client
}

// take acquires the report and makes the fence known to it, as a careful owner does before it reads.
func (s *stage) take(t *testing.T, c *pglease.Client, options ...pglease.AcquireOption) *pglease.Lease {
	t.Helper()
	lease, err := c.Acquire(t.Context(), s.report, options...)
	if err != nil {
		t.Fatal(err)
	}
	s.establish(t, lease.Token())
	return lease
}

func (s *stage) establish(t *testing.T, token fence.Token) {
	t.Helper()
	if err := s.reports.Establish(t.Context(), token, s.report); err != nil {
		t.Fatal(err)
	}
}

// publish has to be accepted as the next version.
func (s *stage) publish(t *testing.T, token fence.Token, body string, version int64) {
	t.Helper()
	done, err := s.reports.Publish(t.Context(), token, reportstore.Report{ID: s.report, Body: []byte(body), ExpectedVersion: version - 1})
	if err != nil || done.Version != version {
		t.Fatalf("publish %q: version %d, %v; want version %d", body, done.Version, err, version)
	}
}

// publishStale has to be refused, for its fence.
func (s *stage) publishStale(t *testing.T, token fence.Token, body string) {
	t.Helper()
	_, err := s.reports.Publish(t.Context(), token, reportstore.Report{ID: s.report, Body: []byte(body), ExpectedVersion: reportstore.AnyVersion})
	if !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("publish %q under fence %d: %v, want a refusal", body, token.Fence(), err)
	}
}

// release asks again where the outcome is open, as it is on a connection to a server that is gone.
func release(t *testing.T, l *pglease.Lease) {
	t.Helper()
	err := l.Release(t.Context())
	for err != nil && !errors.Is(err, pglease.ErrLost) && t.Context().Err() == nil {
		err = l.Release(t.Context())
	}
	if err != nil {
		t.Errorf("Release: %v", err)
	}
}

// grows checks the order of two grants.
func grows(t *testing.T, older, newer fence.Token) {
	t.Helper()
	if order, err := older.Compare(newer); err != nil || order >= 0 {
		t.Errorf("token %v, then %v: %v", older, newer, err)
	}
}

func parse(t *testing.T, text string) fence.Token {
	t.Helper()
	token, err := fence.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A row is a resource as the authority has it.
type row struct {
	fence    int64
	leaseID  string
	current  bool
	acquired time.Time
	expires  time.Time
	now      time.Time
}

func (s *stage) row(t *testing.T) (r row) {
	t.Helper()
	err := s.leases.QueryRow(t.Context(), `SELECT fence, lease_id::text, ended_at IS NULL AND expires_at > clock_timestamp(), acquired_at, expires_at, clock_timestamp()
		FROM pglease.resource_lease WHERE resource_id = $1`, s.report).Scan(&r.fence, &r.leaseID, &r.current, &r.acquired, &r.expires, &r.now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// heldBy checks that the authority has this very lease as the current one.
func (s *stage) heldBy(t *testing.T, token fence.Token) {
	t.Helper()
	if r := s.row(t); !r.current || r.fence != token.Fence() || r.leaseID != token.LeaseID().String() {
		t.Errorf("the authority has %+v, want %v", r, token)
	}
}

// grants reads every grant of the report that the authority knows of: fence and lease id.
func (s *stage) grants(t *testing.T) map[int64]string {
	t.Helper()
	rows, err := s.leases.Query(t.Context(), `
		SELECT fence, lease_id::text FROM pglease.lease_history WHERE resource_id = $1 AND fence IS NOT NULL
		UNION SELECT fence, lease_id::text FROM pglease.resource_lease WHERE resource_id = $1`, s.report)
	if err != nil {
		t.Fatal(err)
	}
	known := map[int64]string{}
	if !s.lost.IsZero() {
		known[s.lost.Fence()] = s.lost.LeaseID().String()
	}
	var number int64
	var id string
	_, err = pgx.ForEachRow(rows, []any{&number, &id}, func() error {
		if known[number] != "" {
			t.Errorf("fence %d was granted twice", number)
		}
		known[number] = id
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// inLine returns when n wait for the report.
func (s *stage) inLine(t *testing.T, n int) {
	t.Helper()
	for have := -1; have != n; {
		if err := s.leases.QueryRow(t.Context(), "SELECT count(*) FROM pglease.lease_waiter WHERE resource_id = $1", s.report).Scan(&have); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// A journal keeps the events of a client.
type journal struct {
	mu  sync.Mutex
	all []pglease.Event
}

// Observe implements pglease.Observer.
func (j *journal) Observe(e pglease.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, e)
}

func (j *journal) count(kind pglease.EventKind) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.all {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// await returns when that many events of the kind have happened.
func (j *journal) await(t *testing.T, kind pglease.EventKind, n int) {
	t.Helper()
	for j.count(kind) < n {
		if t.Context().Err() != nil {
			t.Fatalf("%d events %s, want %d", j.count(kind), kind, n)
		}
		time.Sleep(time.Millisecond)
	}
}
