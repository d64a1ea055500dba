package plans_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// handOverReads bounds the rows that one hand-over reads: the lease and the waiter twice, the installation and the
// client once, and no tenure.
const handOverReads = 8

// A hand-over reads no more rows where the line is long and the resource has had many tenures, whatever the planner
// knows of both. It serves the lowest ticket, also where that is far from the one served before.
func TestAHandOverReadsAFewRows(t *testing.T) {
	t.Parallel()
	for _, size := range []struct{ waiters, apart, tenures int }{{20, 1, 50}, {1000, 1, 50}, {20, 1, 5000}, {1000, 1, 5000}, {1000, 100, 5000}} {
		for _, analyzed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d waiters, %d apart, %d tenures, analyzed %v", size.waiters, size.apart, size.tenures, analyzed), func(t *testing.T) {
				t.Parallel()
				pool := neverAnalyzed(t)
				lineUp(t, pool, size.waiters, size.apart, size.tenures)
				if analyzed {
					if _, err := pool.Exec(t.Context(), "ANALYZE"); err != nil {
						t.Fatal(err)
					}
				}
				lease := "00000000-0000-0000-0000-000000000000"
				for turn := 1; turn <= 8; turn++ { // the plans of a function are made for the first values, and after five times for any
					var ticket, read int
					if lease, ticket, read = handOver(t, pool, lease); ticket != turn*size.apart || read > handOverReads {
						t.Fatalf("turn %d: ticket %d was served, and %d rows were read", turn, ticket, read)
					}
				}
			})
		}
	}
}

// lineUp makes one resource with a line, whose tickets are so far apart, and a past.
func lineUp(t *testing.T, pool *pgxpool.Pool, waiters, apart, tenures int) {
	t.Helper()
	for _, fill := range []struct {
		sql string
		n   int
	}{
		{`INSERT INTO pglease.lease_client (client_id, alive_until)
SELECT md5('client/' || i)::uuid, clock_timestamp() + interval '1 hour' FROM generate_series(0, 7) AS i WHERE $1 > 0`, 1},
		{`INSERT INTO pglease.resource_lease (resource_id, owner_id, lease_id, request_id, fence, acquired_at, expires_at, ttl, waiting)
VALUES ('line', 'owner', '00000000-0000-0000-0000-000000000000', gen_random_uuid(), 1, clock_timestamp(), clock_timestamp() + interval '1 hour', '1 hour', $1)`, waiters},
		{`INSERT INTO pglease.lease_waiter (resource_id, ticket, request_id, client_id, owner_id, ttl, lock_delay, barging, joined_at)
SELECT 'line', i * ` + fmt.Sprint(apart) + `, md5('waiting/' || i)::uuid, md5('client/' || i % 8)::uuid, 'owner', '1 hour', '0', false, clock_timestamp()
FROM generate_series(1, $1) AS i`, waiters},
		{`INSERT INTO pglease.lease_history (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended)
SELECT 'line', -i, 'owner', md5('old lease/' || i)::uuid, md5('old request/' || i)::uuid,
       clock_timestamp() - interval '2 hours', clock_timestamp() - interval '1 hour', clock_timestamp() - interval '90 minutes', 'released'
FROM generate_series(1, $1) AS i`, tenures},
	} {
		if _, err := pool.Exec(t.Context(), fill.sql, fill.n); err != nil {
			t.Fatalf("%v\n%s", err, fill.sql)
		}
	}
}

// handOver releases the lease to the next in line, and returns that one's, its ticket, and how many rows were read.
func handOver(t *testing.T, pool *pgxpool.Pool, lease string) (next string, ticket, read int) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		before, err := rowsRead(t, tx)
		if err != nil {
			return err
		}
		var outcome string
		err = tx.QueryRow(t.Context(), "SELECT p.outcome, p.lease_id::text, p.ticket FROM pglease.lease_pass('line', $1::uuid, '') AS p", lease).Scan(&outcome, &next, &ticket)
		if err != nil {
			return err
		}
		if outcome != "handed_over" {
			return fmt.Errorf("the lease was %s", outcome)
		}
		after, err := rowsRead(t, tx)
		read = after - before
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return next, ticket, read
}

// rowsRead counts what this session has read of our tables and not yet reported.
func rowsRead(t *testing.T, tx pgx.Tx) (n int, err error) {
	t.Helper()
	err = tx.QueryRow(t.Context(), `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int
FROM pg_stat_xact_user_tables WHERE schemaname = 'pglease'`).Scan(&n)
	return n, err
}
