-- name: Renew :many
-- Renew extends the leases named by (resource_id, lease_id), each by its own TTL from now. It
-- changes only rows that still carry that lease id and have not expired: a lease that is over
-- stays over, taken or not. It locks in key order and skips rows that somebody has locked.
-- A lease without a row in the answer was over, or its row was locked: ask LeaseStates which.
--
-- The rows are locked first, so that the clock in SET is read after any wait; greatest keeps a
-- database clock that was set back from shortening a lease. floor tells the server's generation: an
-- old primary that came back has rows of leases that are over elsewhere. awaited tells whether anybody
-- is in line for the resource.
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
RETURNING l.lease_id, (l.expires_at - clock_timestamp())::interval AS remaining, clock_timestamp()::timestamptz AS database_time,
          (l.waiting > 0)::boolean AS awaited, (SELECT f.floor FROM /*schema.*/server_floor AS f)::bigint AS floor;

-- name: LeaseStates :many
-- LeaseStates tells, for leases that a renewal did not touch, whether each is still current (its
-- row was only locked) or how it ended: '' where that is not on record. taken tells that the resource
-- was granted again since; that it has no row, or an older one, is a grant that a failover lost. It
-- has one row for each lease that is asked about; zero rows mean that none was. It reads without locks.
SELECT d.lease_id::uuid AS lease_id,
       coalesce(l.lease_id = d.lease_id AND l.ended_at IS NULL AND l.expires_at > clock_timestamp(), false)::boolean AS current,
       coalesce(h.ended, CASE WHEN l.lease_id = d.lease_id AND l.ended_at < l.expires_at THEN 'released'
                              WHEN l.lease_id = d.lease_id THEN 'expired'
                              ELSE '' END)::text AS ended,
       coalesce(l.lease_id <> d.lease_id AND l.fence >= d.fence, false)::boolean AS taken,
       coalesce(h.ended_by, '')::text AS ended_by,
       coalesce(h.reason, '')::text AS reason,
       clock_timestamp()::timestamptz AS database_time
FROM ROWS FROM (unnest(sqlc.arg(resources)::text[]), unnest(sqlc.arg(leases)::uuid[]), unnest(sqlc.arg(fences)::bigint[])) AS d(resource_id, lease_id, fence)
LEFT JOIN /*schema.*/resource_lease AS l ON l.resource_id = d.resource_id
LEFT JOIN /*schema.*/lease_history AS h ON h.resource_id = d.resource_id AND h.fence = d.fence AND h.lease_id = d.lease_id;
