-- name: Renew :many
-- Renew extends the leases named by (resource_id, lease_id), each by its own TTL from now. It
-- changes only rows that still carry that lease id and have not expired: a lease that is over
-- stays over, taken or not. It locks in key order and skips rows that somebody has locked.
-- A lease without a row in the answer was over, or its row was locked: ask LeaseStates which.
--
-- The rows are locked first, so that the clock in SET is read after any wait; greatest keeps a
-- database clock that was set back from shortening a lease.
WITH due AS MATERIALIZED (
    SELECT l.resource_id
    FROM ROWS FROM (unnest(sqlc.arg(resources)::text[]), unnest(sqlc.arg(leases)::uuid[])) AS d(resource_id, lease_id)
    JOIN /*schema.*/resource_lease AS l ON l.resource_id = d.resource_id AND l.lease_id = d.lease_id
    WHERE l.ended_at IS NULL AND l.expires_at > clock_timestamp()
    ORDER BY l.resource_id
    FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE /*schema.*/resource_lease AS l
SET expires_at = greatest(l.expires_at, clock_timestamp() + l.ttl)
FROM due
WHERE l.resource_id = due.resource_id AND l.ended_at IS NULL AND l.expires_at > clock_timestamp()
RETURNING l.lease_id, (l.expires_at - clock_timestamp())::interval AS remaining, clock_timestamp()::timestamptz AS database_time;

-- name: LeaseStates :many
-- LeaseStates tells, for leases that a renewal did not touch, whether each is still current (its
-- row was only locked) or how it ended: '' where another lease has the row, and history is off or
-- pruned. It has one row for each lease that is asked about; zero rows mean that none was. It reads
-- without locks.
SELECT d.lease_id::uuid AS lease_id,
       (l.lease_id IS NOT NULL AND l.ended_at IS NULL AND l.expires_at > clock_timestamp())::boolean AS current,
       coalesce(h.ended, CASE WHEN l.lease_id IS NULL THEN ''
                              WHEN l.ended_at < l.expires_at THEN 'released'
                              ELSE 'expired' END)::text AS ended,
       (l.lease_id IS NULL)::boolean AS taken,
       coalesce(h.ended_by, '')::text AS ended_by,
       coalesce(h.reason, '')::text AS reason,
       clock_timestamp()::timestamptz AS database_time
FROM ROWS FROM (unnest(sqlc.arg(resources)::text[]), unnest(sqlc.arg(leases)::uuid[]), unnest(sqlc.arg(fences)::bigint[])) AS d(resource_id, lease_id, fence)
LEFT JOIN /*schema.*/resource_lease AS l ON l.resource_id = d.resource_id AND l.lease_id = d.lease_id
LEFT JOIN /*schema.*/lease_history AS h ON h.resource_id = d.resource_id AND h.fence = d.fence AND h.lease_id = d.lease_id;
