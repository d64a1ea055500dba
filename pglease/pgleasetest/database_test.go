package pgleasetest_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func checkMigrated(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pglease.resource_lease").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d leases, %v", n, err)
	}
}

func insertLease(t *testing.T, pool *pgxpool.Pool, resource string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		INSERT INTO pglease.resource_lease (resource_id, owner_id, lease_id, request_id, fence, acquired_at, expires_at, ttl)
		VALUES ($1, 'me', gen_random_uuid(), gen_random_uuid(), 1, clock_timestamp(), clock_timestamp() + interval '1 hour', interval '1 hour')`, resource)
	if err != nil {
		t.Fatal(err)
	}
}

func TestEachTestHasItsOwnDatabase(t *testing.T) {
	t.Parallel()
	one, two := pgleasetest.Pool(t), pgleasetest.Pool(t)
	insertLease(t, one, "r")
	checkMigrated(t, two)
}

func TestDatabaseIsDropped(t *testing.T) {
	t.Parallel()
	outside := pgleasetest.Pool(t)
	var name string
	t.Run("inside", func(t *testing.T) {
		name = pgleasetest.Pool(t).Config().ConnConfig.Database
	})
	var there bool
	err := outside.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&there)
	if err != nil || there {
		t.Errorf("database %s is there: %v, %v", name, there, err)
	}
}

func TestLinesAreApplied(t *testing.T) {
	t.Parallel()
	for _, line := range migrations.Lines() {
		t.Run(string(line), func(t *testing.T) {
			t.Parallel()
			pool := pgleasetest.Pool(t, line)
			checkMigrated(t, pool)
			state, err := migrations.Version(t.Context(), pool, line)
			if err != nil || state.Version != migrations.Latest(line) {
				t.Errorf("line %s is at %+v, %v", line, state, err)
			}
		})
	}
}

func TestExpireLease(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	insertLease(t, pool, "r")
	insertLease(t, pool, "other")
	pgleasetest.ExpireLease(t, pool, "r", pgleasetest.InSchema("pglease"))
	var live, sound string
	err := pool.QueryRow(t.Context(), `
		SELECT string_agg(resource_id, ' ') FILTER (WHERE expires_at > clock_timestamp()),
		       string_agg(resource_id, ' ' ORDER BY resource_id) FILTER (WHERE expires_at >= acquired_at)
		  FROM pglease.resource_lease`).Scan(&live, &sound)
	if err != nil || live != "other" || sound != "other r" {
		t.Errorf("live: %q, expiring after acquisition: %q, %v", live, sound, err)
	}
}
