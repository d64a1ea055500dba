-- name: Abandon :one
-- Abandon is for an acquire whose outcome nobody waits for any more: it ends the lease that the
-- request was granted, if it was, takes it out of the line, and makes sure that the request is never granted later, however
-- late its packet arrives. It waits for the row's lock, so it sees a grant that was under way.
-- It answers how the request's lease ended, '' where it had none, or 'again' where the row was
-- created while it looked: it must then run once more. It always has one row; zero cannot be.
WITH cur AS MATERIALIZED (
    SELECT l.resource_id, l.owner_id, l.lease_id, l.request_id, l.fence, l.acquired_at, l.expires_at, l.ended_at, l.ticket
    FROM /*schema.*/resource_lease AS l
    WHERE l.resource_id = sqlc.arg(resource_id)::text
    FOR NO KEY UPDATE OF l
), left_line AS (
    DELETE FROM /*schema.*/lease_waiter AS w
    USING cur
    WHERE w.resource_id = cur.resource_id AND w.request_id = sqlc.arg(request_id)::uuid
    RETURNING w.ticket
), marked AS (
    UPDATE /*schema.*/resource_lease AS l
    SET refused_request_id = sqlc.arg(request_id)::uuid,
        waiting = l.waiting - (SELECT count(*) FROM left_line)::integer,
        ended_at = CASE WHEN l.request_id = sqlc.arg(request_id)::uuid AND l.ended_at IS NULL
                        THEN least(clock_timestamp(), l.expires_at) ELSE l.ended_at END
    FROM cur
    WHERE l.resource_id = cur.resource_id
    RETURNING l.ended_at
), created AS (
    INSERT INTO /*schema.*/resource_lease AS l (resource_id, owner_id, lease_id, request_id, fence, acquired_at, expires_at, ttl, ended_at, refused_request_id)
    SELECT sqlc.arg(resource_id)::text, '', gen_random_uuid(), sqlc.arg(request_id)::uuid,
           (SELECT f.floor FROM /*schema.*/server_floor AS f), clock_timestamp(), clock_timestamp(), interval '1 second',
           clock_timestamp(), sqlc.arg(request_id)::uuid
    WHERE NOT EXISTS (SELECT FROM /*schema.*/resource_lease AS e WHERE e.resource_id = sqlc.arg(resource_id)::text)
    ON CONFLICT (resource_id) DO UPDATE SET refused_request_id = sqlc.arg(request_id)::uuid
    RETURNING l.ended_at IS NULL AS current
), tenure AS (
    INSERT INTO /*schema.*/lease_history (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended, ticket)
    SELECT c.resource_id, c.fence, c.owner_id, c.lease_id, c.request_id, c.acquired_at, c.expires_at, m.ended_at,
           CASE WHEN m.ended_at < c.expires_at THEN 'released' ELSE 'expired' END, c.ticket
    FROM cur AS c, marked AS m
    WHERE c.request_id = sqlc.arg(request_id)::uuid AND c.ended_at IS NULL
      AND (SELECT i.history FROM /*schema.*/installation AS i)
    RETURNING ended
), marker AS (
    INSERT INTO /*schema.*/lease_history (resource_id, owner_id, request_id, ended_at, ended)
    SELECT sqlc.arg(resource_id)::text, '', sqlc.arg(request_id)::uuid, clock_timestamp(), 'abandoned'
    WHERE NOT EXISTS (SELECT FROM cur AS c WHERE c.request_id = sqlc.arg(request_id)::uuid)
      AND NOT EXISTS (SELECT FROM /*schema.*/lease_history AS h
                      WHERE h.request_id = sqlc.arg(request_id)::uuid AND h.resource_id = sqlc.arg(resource_id)::text)
)
SELECT coalesce((SELECT t.ended FROM tenure AS t), (SELECT 'again' FROM created AS c WHERE c.current), '')::text AS ended;
