-- name: AcquireFree :one
-- AcquireFree is Acquire for the common case, at less than half its cost: the row exists, was freed by a release,
-- and nobody waits. It must not be sent for a request that may have been granted. Its row is the grant. Zero rows
-- mean that nothing was done, whatever the reason: it has no part that would tell, because each part of
-- a statement is set up every time, needed or not. Peek and Acquire tell.
--
-- The row is locked first and then found by where it lies, which costs less than by its key. One that was changed
-- between the statement's beginning and the lock lies elsewhere, and is not found.
UPDATE /*schema.*/resource_lease AS l
SET owner_id    = sqlc.arg(owner_id)::text,
    lease_id    = gen_random_uuid(),
    request_id  = sqlc.arg(request_id)::uuid,
    fence       = greatest(l.fence + 1, (SELECT f.floor FROM /*schema.*/fence_floor AS f)),
    acquired_at = clock_timestamp(),
    expires_at  = clock_timestamp() + sqlc.arg(ttl)::interval,
    ttl         = sqlc.arg(ttl)::interval,
    lock_delay  = sqlc.arg(lock_delay)::interval,
    ended_at    = NULL,
    ticket      = NULL
WHERE l.ctid = (
    SELECT r.ctid
    FROM /*schema.*/resource_lease AS r
    WHERE r.resource_id = sqlc.arg(resource_id)::text
      AND r.ended_at IS NOT NULL AND r.waiting = 0
      AND r.request_id <> sqlc.arg(request_id)::uuid
      AND r.refused_request_id IS DISTINCT FROM sqlc.arg(request_id)::uuid
      AND NOT EXISTS ( -- a packet that arrives after its request was abandoned
          SELECT FROM /*schema.*/lease_history AS h
          WHERE h.request_id = sqlc.arg(request_id)::uuid AND h.resource_id = r.resource_id)
    FOR UPDATE OF r SKIP LOCKED)
RETURNING l.lease_id, l.fence, (l.expires_at - clock_timestamp())::interval AS remaining, clock_timestamp()::timestamptz AS database_time,
    -- The grant must survive a crash of the server: an asynchronous commit would let its fence be drawn twice.
    (CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
          THEN set_config('synchronous_commit', 'on', true) ELSE '' END)::text AS synchronous_commit,
    (current_setting('synchronous_standby_names') <> '')::boolean AS waits_for_standby;

-- name: Acquire :one
-- Acquire grants the resource to this request if it is free or expired and nobody waits in line for
-- it. It never waits for a holder and, when refused, neither locks nor writes.
-- It answers with one row: 'granted'; 'repeated', when this request was granted before and its
-- lease is current; 'spent', when this request was granted before and that lease is over, or it was
-- abandoned; 'held', when another owner has the resource; 'queued', when it is free and others wait
-- for it: Promote sees to that. Zero rows mean that a rival is creating the row: held.
-- A barging request does not mind the line; with its own ticket it leaves the line as it is granted.
--
-- The row is locked first and the clock read after that, so a grant that waited has its full TTL.
-- remaining is read after the write and counts from a moment after the caller sent the statement;
-- of a holder it is what is left until the resource may be taken.
WITH free AS MATERIALIZED (
    SELECT l.resource_id, l.owner_id, l.lease_id, l.request_id, l.fence, l.acquired_at, l.expires_at, l.ended_at, l.ticket
    FROM /*schema.*/resource_lease AS l
    WHERE l.resource_id = sqlc.arg(resource_id)::text
      AND l.request_id <> sqlc.arg(request_id)::uuid
      AND l.refused_request_id IS DISTINCT FROM sqlc.arg(request_id)::uuid
      AND (l.ended_at IS NOT NULL OR l.expires_at + l.lock_delay <= clock_timestamp())
      AND (l.waiting = 0 OR sqlc.arg(barging)::boolean)
      AND NOT EXISTS (
          SELECT FROM /*schema.*/lease_history AS h
          WHERE h.request_id = sqlc.arg(request_id)::uuid AND h.resource_id = l.resource_id)
    FOR UPDATE OF l SKIP LOCKED
), expired AS (
    INSERT INTO /*schema.*/lease_history (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended, ticket)
    SELECT f.resource_id, f.fence, f.owner_id, f.lease_id, f.request_id, f.acquired_at, f.expires_at, f.expires_at, 'expired', f.ticket
    FROM free AS f
    WHERE f.ended_at IS NULL AND (SELECT i.history FROM /*schema.*/installation AS i)
), stepped_out AS (
    DELETE FROM /*schema.*/lease_waiter AS w
    WHERE w.resource_id = sqlc.arg(resource_id)::text AND w.ticket = sqlc.arg(ticket)::bigint
      AND EXISTS (SELECT FROM free)
    RETURNING w.ticket
), granted AS (
    UPDATE /*schema.*/resource_lease AS l
    SET owner_id    = sqlc.arg(owner_id)::text,
        lease_id    = gen_random_uuid(),
        request_id  = sqlc.arg(request_id)::uuid,
        fence       = greatest(l.fence + 1, (SELECT f.floor FROM /*schema.*/fence_floor AS f)),
        acquired_at = clock_timestamp(),
        expires_at  = clock_timestamp() + sqlc.arg(ttl)::interval,
        ttl         = sqlc.arg(ttl)::interval,
        lock_delay  = sqlc.arg(lock_delay)::interval,
        ended_at    = NULL,
        ticket      = (SELECT s.ticket FROM stepped_out AS s),
        waiting     = l.waiting - (SELECT count(*) FROM stepped_out)::integer
    FROM free
    WHERE l.resource_id = free.resource_id
    RETURNING l.lease_id, l.fence, l.owner_id, (l.expires_at - clock_timestamp())::interval AS remaining
), created AS (
    INSERT INTO /*schema.*/resource_lease AS l (resource_id, owner_id, lease_id, request_id, fence, acquired_at, expires_at, ttl, lock_delay)
    SELECT sqlc.arg(resource_id)::text, sqlc.arg(owner_id)::text, gen_random_uuid(), sqlc.arg(request_id)::uuid,
           (SELECT f.floor FROM /*schema.*/fence_floor AS f), clock_timestamp(),
           clock_timestamp() + sqlc.arg(ttl)::interval, sqlc.arg(ttl)::interval, sqlc.arg(lock_delay)::interval
    WHERE NOT EXISTS (SELECT FROM /*schema.*/resource_lease AS e WHERE e.resource_id = sqlc.arg(resource_id)::text)
      AND NOT EXISTS (
          SELECT FROM /*schema.*/lease_history AS h
          WHERE h.request_id = sqlc.arg(request_id)::uuid AND h.resource_id = sqlc.arg(resource_id)::text)
    ON CONFLICT (resource_id) DO NOTHING
    RETURNING l.lease_id, l.fence, l.owner_id, (l.expires_at - clock_timestamp())::interval AS remaining
), answer AS (
    SELECT 'granted' AS outcome, g.lease_id, g.fence, g.owner_id, g.remaining FROM granted AS g
    UNION ALL
    SELECT 'granted', c.lease_id, c.fence, c.owner_id, c.remaining FROM created AS c
    UNION ALL
    SELECT CASE WHEN l.refused_request_id = sqlc.arg(request_id)::uuid OR EXISTS (
                    SELECT FROM /*schema.*/lease_history AS h
                    WHERE h.request_id = sqlc.arg(request_id)::uuid AND h.resource_id = l.resource_id) THEN 'spent'
                WHEN l.request_id = sqlc.arg(request_id)::uuid THEN
                    CASE WHEN l.ended_at IS NULL AND l.expires_at > clock_timestamp() THEN 'repeated' ELSE 'spent' END
                WHEN l.waiting > 0 AND (l.ended_at IS NOT NULL OR l.expires_at + l.lock_delay <= clock_timestamp()) THEN 'queued'
                ELSE 'held' END,
           l.lease_id, l.fence,
           -- Where the resource is free and a rival is at its row, the last owner is not its holder.
           CASE WHEN l.ended_at IS NULL AND l.expires_at > clock_timestamp() THEN l.owner_id ELSE '' END,
           CASE WHEN l.ended_at IS NOT NULL THEN interval '0'
                WHEN l.request_id = sqlc.arg(request_id)::uuid THEN l.expires_at - clock_timestamp()
                ELSE l.expires_at + l.lock_delay - clock_timestamp() END
    FROM /*schema.*/resource_lease AS l
    WHERE l.resource_id = sqlc.arg(resource_id)::text
      AND NOT EXISTS (SELECT FROM granted) AND NOT EXISTS (SELECT FROM created)
)
SELECT a.outcome::text AS outcome, a.lease_id::uuid AS lease_id, a.fence::bigint AS fence, a.owner_id::text AS owner_id,
       a.remaining::interval AS remaining, clock_timestamp()::timestamptz AS database_time,
       -- The grant must survive a crash of the server: an asynchronous commit would let its fence be drawn twice.
       (CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
             THEN set_config('synchronous_commit', 'on', true)
             ELSE current_setting('synchronous_commit') END)::text AS synchronous_commit,
       (current_setting('synchronous_standby_names') <> '')::boolean AS waits_for_standby
FROM answer AS a;
