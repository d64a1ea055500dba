package plans_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// large are the tables that no statement may walk through.
var large = []string{
	"resource_lease", "lease_history", "lease_waiter", "fence_watermark", "fence_command", "fence_rejection", "job", "outbox",
}

// fill makes tables of so many rows, without their triggers. What a sample value names is there.
func fill(t *testing.T, pool *pgxpool.Pool, rows int) {
	t.Helper()
	err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		if _, err := conn.Exec(t.Context(), "SET session_replication_role = replica"); err != nil {
			return err
		}
		// What is not logged is filled much faster, and planned the same.
		for _, table := range large {
			if err := run(t, conn.Conn(), "ALTER TABLE pglease."+table+" SET UNLOGGED"); err != nil {
				return err
			}
		}
		if err := insert(t, conn.Conn(), rows); err != nil {
			return err
		}
		for _, table := range large {
			if err := run(t, conn.Conn(), "VACUUM ANALYZE pglease."+table); err != nil {
				return err
			}
		}
		return run(t, conn.Conn(), "RESET session_replication_role")
	})
	if err != nil {
		t.Fatal(err)
	}
}

func insert(t *testing.T, conn *pgx.Conn, rows int) error {
	t.Helper()
	for _, sql := range fillings {
		if err := run(t, conn, strings.ReplaceAll(sql, "$rows", fmt.Sprint(rows))); err != nil {
			return fmt.Errorf("%w\n%s", err, sql)
		}
	}
	return nil
}

func run(t *testing.T, conn *pgx.Conn, sql string) error {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql)
	return err
}

// A third of the resources is free. One has a line of a thousand, and a hundred thousand have one waiter each. Of
// the jobs nine in ten are over.
var fillings = []string{
	`INSERT INTO pglease.resource_lease (resource_id, owner_id, lease_id, request_id, fence, acquired_at, expires_at, ttl, ended_at, waiting)
SELECT 'r/' || i, 'owner', md5('lease/' || i)::uuid, md5('request/' || i)::uuid, i, clock_timestamp() - interval '1 hour',
       clock_timestamp() + interval '1 hour', '1 hour', CASE WHEN i % 3 = 0 THEN clock_timestamp() END,
       CASE WHEN i = 1 THEN 1000 WHEN i <= 100000 THEN 1 ELSE 0 END
FROM generate_series(1, $rows) AS i`,
	`INSERT INTO pglease.lease_history (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended)
SELECT 'r/' || 1 + i % ($rows / 10), i, 'owner', md5('old lease/' || i)::uuid, md5('old request/' || i)::uuid,
       clock_timestamp() - interval '2 hours', clock_timestamp() - interval '1 hour', clock_timestamp() - interval '90 minutes', 'released'
FROM generate_series(1, $rows) AS i`,
	`INSERT INTO pglease.lease_waiter (resource_id, request_id, client_id, owner_id, ttl, lock_delay, barging, joined_at)
SELECT 'r/' || CASE WHEN i < 1000 THEN 1 ELSE i - 998 END, md5('waiting/' || i)::uuid, md5('client/' || i % 1000)::uuid, 'owner',
       '1 hour', '0', false, clock_timestamp()
FROM generate_series(0, 100997) AS i`,
	`INSERT INTO pglease.lease_client (client_id, session_key, alive_until)
SELECT md5('client/' || i)::uuid, i, clock_timestamp() + interval '1 hour' FROM generate_series(0, 999) AS i`,
	`INSERT INTO pglease.fence_watermark (resource_id, fence, lease_id) SELECT 'r/' || i, i, md5('lease/' || i)::uuid FROM generate_series(1, $rows / 10) AS i`,
	`INSERT INTO pglease.fence_command (resource_id, version, fence, lease_id, owner_id, command_key, sequence)
SELECT 'r/' || 1 + i % ($rows / 100), i, i, md5('lease/' || i)::uuid, 'owner', 'key/' || i, i FROM generate_series(1, $rows / 10) AS i`,
	`INSERT INTO pglease.fence_rejection (rejection_id, resource_id, fence, greatest_fence)
SELECT md5('rejection/' || i)::uuid, 'r/' || 1 + i % 1000, i, i + 1 FROM generate_series(1, $rows / 10) AS i`,
	`INSERT INTO pglease.job (queue, state, max_attempts, payload, finished_at)
SELECT 'q/' || i % 10, 'done', 3, '{}', clock_timestamp() FROM generate_series(1, $rows * 9 / 10) AS i`,
	`INSERT INTO pglease.job (queue, state, max_attempts, payload, run_at)
SELECT 'q/' || i % 10, 'ready', 3, '{}', clock_timestamp() + CASE WHEN i % 2 = 0 THEN interval '1 day' ELSE '0' END
FROM generate_series(1, $rows / 20) AS i`,
	`INSERT INTO pglease.job (queue, state, max_attempts, payload, fence, worker_id, claimed_at, expires_at)
SELECT 'q/' || i % 10, 'running', 3, '{}', i, 'worker', clock_timestamp(), clock_timestamp() + interval '1 hour' FROM generate_series(1, $rows / 100) AS i`,
	`INSERT INTO pglease.job (queue, state, max_attempts, payload, partition_key)
SELECT 'q/' || i % 10, 'waiting', 3, '{}', 'p/' || i % 1000 FROM generate_series(1, $rows / 50) AS i`,
	`INSERT INTO pglease.job (queue, state, max_attempts, payload, unique_key)
SELECT 'q/' || i % 10, 'parked', 3, '{}', 'u/' || i FROM generate_series(1, $rows / 50) AS i`,
	`INSERT INTO pglease.outbox (outbox, message_key, topic, body, relayed_at, relayed_fence)
SELECT 'o/' || i % 10, 'k/' || i, 'topic', '', CASE WHEN i % 50 > 0 THEN clock_timestamp() END, CASE WHEN i % 50 > 0 THEN 1 END
FROM generate_series(1, $rows / 2) AS i`,
	`INSERT INTO pglease.outbox_relay (outbox, greatest_fence, greatest_lease_id) VALUES ('o/5', 500, md5('lease/500')::uuid)`,
}
