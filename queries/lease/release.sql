-- name: Release :one
-- Release ends the tenure of exactly this lease and records it. It answers 'released', or
-- 'expired' where the lease had expired and nobody had taken it. Zero rows mean that the lease
-- was over already: harmless, and nothing of a newer lease is touched.
WITH mine AS MATERIALIZED (
    SELECT l.resource_id, l.owner_id, l.lease_id, l.request_id, l.fence, l.acquired_at, l.expires_at
    FROM /*schema.*/resource_lease AS l
    WHERE l.resource_id = sqlc.arg(resource_id)::text AND l.lease_id = sqlc.arg(lease_id)::uuid AND l.ended_at IS NULL
    FOR NO KEY UPDATE OF l
), ended AS (
    UPDATE /*schema.*/resource_lease AS l
    SET ended_at = least(clock_timestamp(), l.expires_at)
    FROM mine
    WHERE l.resource_id = mine.resource_id
    RETURNING l.ended_at
), recorded AS (
    INSERT INTO /*schema.*/lease_history (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended)
    SELECT m.resource_id, m.fence, m.owner_id, m.lease_id, m.request_id, m.acquired_at, m.expires_at, e.ended_at,
           CASE WHEN e.ended_at < m.expires_at THEN 'released' ELSE 'expired' END
    FROM mine AS m, ended AS e
    WHERE (SELECT i.history FROM /*schema.*/installation AS i)
)
SELECT (CASE WHEN e.ended_at < m.expires_at THEN 'released' ELSE 'expired' END)::text AS ended,
       clock_timestamp()::timestamptz AS database_time
FROM mine AS m, ended AS e;

-- name: BreakLease :one
-- BreakLease ends another's lease, by the exact lease id that the operator saw, with a reason. Zero
-- rows mean that it changed since: look again. The fence still moves forward with the next grant.
WITH seen AS MATERIALIZED (
    SELECT l.resource_id, l.owner_id, l.lease_id, l.request_id, l.fence, l.acquired_at, l.expires_at
    FROM /*schema.*/resource_lease AS l
    WHERE l.resource_id = sqlc.arg(resource_id)::text AND l.lease_id = sqlc.arg(lease_id)::uuid
      AND l.ended_at IS NULL AND l.expires_at > clock_timestamp()
    FOR NO KEY UPDATE OF l
), ended AS (
    UPDATE /*schema.*/resource_lease AS l
    SET ended_at = clock_timestamp()
    FROM seen
    WHERE l.resource_id = seen.resource_id
    RETURNING l.ended_at
), recorded AS (
    INSERT INTO /*schema.*/lease_history (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended, ended_by, reason)
    SELECT s.resource_id, s.fence, s.owner_id, s.lease_id, s.request_id, s.acquired_at, s.expires_at, e.ended_at,
           'broken', sqlc.arg(ended_by)::text, sqlc.arg(reason)::text
    FROM seen AS s, ended AS e
)
SELECT s.fence, s.owner_id, e.ended_at::timestamptz AS ended_at FROM seen AS s, ended AS e;
