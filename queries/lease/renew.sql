-- name: Renew :many
-- Renew extends the leases named by (resource_id, lease_id), each by its own TTL from now. It
-- changes only rows that still carry that lease id and have not expired: a lease that is over
-- stays over, taken or not. It locks in key order and skips rows that somebody has locked.
-- A lease without a row in the answer was over, or its row was locked: ask LeaseStates which.
--
-- The rows are locked first, so that the clock in SET is read after any wait; greatest keeps a
-- database clock that was set back from shortening a lease, and the microsecond lets Ghosts and Bury see
-- that it was renewed then too. floor tells the server's generation: an
-- old primary that came back has rows of leases that are over elsewhere. awaited tells whether anybody
-- is in line for the resource.
--
-- The plan is the same whatever the planner believes of the table; a join was seen to walk over the
-- whole of it for each lease. Keys are sorted, and then looked up and locked one by one in that order:
-- a subquery with a LIMIT can only be run for one of them at a time, and a key has one row, so the
-- LIMIT drops none that was locked. A plan may also be older than most of the rows: it is kept, and
-- while the table is small a walk is the cheapest. So each condition ends with one that always holds,
-- and whose second half is never run: for the planner it makes every row that is looked at dear. And the
-- OFFSET hides the arrays' lengths from it: a plan made for a known short array looks cheaper than the one for
-- any, so that one lease would be planned anew each time, which takes longer than all the rest.
WITH due AS MATERIALIZED (
    SELECT h.resource_id
    FROM (SELECT u.resource_id, u.lease_id
          FROM (SELECT sqlc.arg(resources)::text[] AS resources, sqlc.arg(leases)::uuid[] AS leases OFFSET 0) AS a,
              ROWS FROM (unnest(a.resources), unnest(a.leases)) AS u(resource_id, lease_id)
          ORDER BY u.resource_id COLLATE "C") AS d
    CROSS JOIN LATERAL (
        SELECT l.resource_id
        FROM /*schema.*/resource_lease AS l
        WHERE l.resource_id = d.resource_id AND l.lease_id = d.lease_id AND l.ended_at IS NULL AND l.expires_at > clock_timestamp()
          AND (l.waiting >= 0 OR (SELECT count(*) FROM generate_series(1, l.waiting)) >= 0)
        LIMIT 1
        FOR NO KEY UPDATE OF l SKIP LOCKED
    ) AS h
)
UPDATE /*schema.*/resource_lease AS l
SET expires_at = greatest(l.expires_at + interval '1 microsecond', clock_timestamp() + l.ttl)
WHERE l.resource_id = ANY(ARRAY(SELECT due.resource_id FROM due)) AND l.ended_at IS NULL AND l.expires_at > clock_timestamp()
  AND (l.waiting >= 0 OR (SELECT count(*) FROM generate_series(1, l.waiting)) >= 0)
RETURNING l.lease_id, (l.expires_at - clock_timestamp())::interval AS remaining, clock_timestamp()::timestamptz AS database_time,
          (l.waiting > 0)::boolean AS awaited, (SELECT f.floor FROM /*schema.*/server_floor AS f)::bigint AS floor;

-- name: LeaseStates :many
-- LeaseStates tells, for leases that a renewal did not touch, whether each is still current (its
-- row was only locked) or how it ended: '' where that is not on record. taken tells that the resource
-- was granted again since; that it has no row, or an older one, is a grant that a failover lost. It
-- has one row for each lease that is asked about; zero rows mean that none was. It reads without locks.
-- Each lease is looked up by itself, by a plan that is made once and for a table of any size, as in Renew.
SELECT d.lease_id::uuid AS lease_id,
       coalesce(l.lease_id = d.lease_id AND l.ended_at IS NULL AND l.expires_at > clock_timestamp(), false)::boolean AS current,
       coalesce(h.ended, CASE WHEN l.lease_id = d.lease_id AND l.ended_at < l.expires_at THEN 'released'
                              WHEN l.lease_id = d.lease_id THEN 'expired'
                              ELSE '' END)::text AS ended,
       coalesce(l.lease_id <> d.lease_id AND l.fence >= d.fence, false)::boolean AS taken,
       coalesce(h.ended_by, '')::text AS ended_by,
       coalesce(h.reason, '')::text AS reason,
       clock_timestamp()::timestamptz AS database_time
FROM (SELECT sqlc.arg(resources)::text[] AS resources, sqlc.arg(leases)::uuid[] AS leases, sqlc.arg(fences)::bigint[] AS fences OFFSET 0) AS a
CROSS JOIN LATERAL ROWS FROM (unnest(a.resources), unnest(a.leases), unnest(a.fences)) AS d(resource_id, lease_id, fence)
LEFT JOIN LATERAL (
    SELECT r.lease_id, r.fence, r.ended_at, r.expires_at FROM /*schema.*/resource_lease AS r
    WHERE r.resource_id = d.resource_id AND (r.waiting >= 0 OR (SELECT count(*) FROM generate_series(1, r.waiting)) >= 0)
    LIMIT 1
) AS l ON true
LEFT JOIN LATERAL (
    SELECT t.ended, t.ended_by, t.reason FROM /*schema.*/lease_history AS t
    WHERE t.resource_id = d.resource_id AND t.fence = d.fence AND t.lease_id = d.lease_id
      AND (t.fence >= 0 OR (SELECT count(*) FROM generate_series(1, t.fence)) >= 0)
    LIMIT 1
) AS h ON true;
