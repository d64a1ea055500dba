package authority_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestMain(m *testing.M) { pgleasetest.Main(m) }

const ttl = 10 * time.Second

// bench is an authority on a database of its own.
type bench struct {
	*testing.T
	*authority.Postgres
	pool *pgxpool.Pool
}

func newBench(t *testing.T) bench {
	t.Helper()
	return benchOn(t, pgleasetest.Pool(t))
}

func benchOn(t *testing.T, pool *pgxpool.Pool) bench {
	t.Helper()
	s, err := schema.New("")
	if err != nil {
		t.Fatal(err)
	}
	p := authority.NewPostgres(pool, s)
	t.Cleanup(func() { p.Close(context.WithoutCancel(t.Context())) })
	return bench{T: t, Postgres: p, pool: pool}
}

// acquire sends a request that may have been sent before.
func (b bench) acquire(resource string, request byte) authority.Answer {
	b.Helper()
	return b.send(authority.Request{Resource: resource, ID: authority.ID{0: request}, Owner: "w", TTL: ttl})
}

// fresh sends a request for the first time.
func (b bench) fresh(resource string, request byte) authority.Answer {
	b.Helper()
	return b.send(authority.Request{Resource: resource, ID: authority.ID{0: request}, Owner: "w", TTL: ttl, Fresh: true})
}

func (b bench) send(r authority.Request) authority.Answer {
	b.Helper()
	answer, err := b.Acquire(b.Context(), r)
	if err != nil {
		b.Fatalf("Acquire: %v", err)
	}
	return answer
}

func (b bench) granted(resource string, request byte) fence.Token {
	b.Helper()
	answer := b.fresh(resource, request)
	if answer.Outcome != authority.Granted {
		b.Fatalf("request %d was answered %q", request, answer.Outcome)
	}
	return answer.Token
}

func (b bench) renew(tokens ...fence.Token) []authority.Renewal {
	b.Helper()
	renewals, err := b.Renew(b.Context(), tokens, 0)
	if err != nil {
		b.Fatalf("Renew: %v", err)
	}
	return renewals
}

func (b bench) release(token fence.Token) string {
	b.Helper()
	ended, _, err := b.Release(b.Context(), authority.ReleaseRequest{Lease: token, Unawaited: true})
	if err != nil {
		b.Fatalf("Release: %v", err)
	}
	return ended.Ended
}

// expire lets the lease run out without waiting for it.
func (b bench) expire(resource string) {
	b.Helper()
	pgleasetest.ExpireLease(b, b.pool, resource)
}

// query scans the one row of a statement.
func (b bench) query(sql string, args []any, into ...any) {
	b.Helper()
	if err := b.pool.QueryRow(b.Context(), sql, args...).Scan(into...); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
}

func (b bench) exec(sql string, args ...any) int64 {
	b.Helper()
	tag, err := b.pool.Exec(b.Context(), sql, args...)
	if err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}
