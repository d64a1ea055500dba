-- name: Release :one
-- Release ends the tenure of exactly this lease and records it. Where somebody waits it hands the
-- resource over in the same statement: the first live waiter gets the next lease, and the dead and
-- late ones before it are dropped. With a successor only a waiter of that owner name is looked for.
-- It answers 'released'; 'handed_over', with the new lease; 'rung', when it was released and the
-- first waiter is a barging one that should be told; 'expired' where the lease had expired and nobody
-- had taken it; 'alone' when the named successor does not wait; or 'again', when the queue changed
-- between the statement's snapshot and the row's lock, and nothing was done. Zero rows mean that the
-- lease was over already: harmless, and nothing of a newer lease is touched.
--
-- Whether anybody waits stands in the locked row, so no waiter that joined before is missed. The
-- lock is the strongest, so that a guarded transaction is waited for before the clock is read.
WITH seen AS MATERIALIZED (
    SELECT l.queue_version FROM /*schema.*/resource_lease AS l WHERE l.resource_id = sqlc.arg(resource_id)::text
), mine AS MATERIALIZED (
    SELECT l.resource_id, l.owner_id, l.lease_id, l.request_id, l.fence, l.acquired_at, l.expires_at, l.waiting, l.ticket,
           l.queue_version
    FROM /*schema.*/resource_lease AS l
    WHERE l.resource_id = sqlc.arg(resource_id)::text AND l.lease_id = sqlc.arg(lease_id)::uuid AND l.ended_at IS NULL
    FOR UPDATE OF l
), judged AS MATERIALIZED (
    SELECT m.resource_id, m.waiting, m.waiting > 0 AND m.queue_version <> s.queue_version AS again
    FROM mine AS m, seen AS s
), head AS MATERIALIZED (
    SELECT q.resource_id, q.ticket, q.request_id, q.client_id, q.owner_id, q.ttl, q.lock_delay, q.barging
    FROM (SELECT w.resource_id, w.ticket, w.request_id, w.client_id, w.owner_id, w.ttl, w.lock_delay, w.barging, w.alive
          FROM judged AS j
          JOIN /*schema.*/lease_line AS w ON w.resource_id = j.resource_id
          WHERE j.waiting > 0 AND NOT j.again
            AND (sqlc.arg(successor)::text = '' OR w.owner_id = sqlc.arg(successor)::text)
          ORDER BY w.ticket OFFSET 0) AS q
    WHERE q.alive
    LIMIT 1
), dropped AS (
    DELETE FROM /*schema.*/lease_waiter AS w
    USING judged AS j LEFT JOIN head AS h ON true
    WHERE w.resource_id = j.resource_id AND j.waiting > 0 AND NOT j.again
      AND CASE WHEN sqlc.arg(successor)::text <> '' THEN w.ticket = h.ticket
               WHEN h.barging THEN w.ticket < h.ticket
               ELSE h.ticket IS NULL OR w.ticket <= h.ticket END
    RETURNING w.ticket
), handed AS (
    UPDATE /*schema.*/resource_lease AS l
    SET owner_id      = h.owner_id,
        lease_id      = gen_random_uuid(),
        request_id    = h.request_id,
        fence         = greatest(l.fence + 1, (SELECT f.floor FROM /*schema.*/fence_floor AS f)),
        acquired_at   = clock_timestamp(),
        expires_at    = clock_timestamp() + h.ttl,
        ttl           = h.ttl,
        lock_delay    = h.lock_delay,
        ticket        = h.ticket,
        waiting       = l.waiting - (SELECT count(*) FROM dropped)::integer,
        queue_version = l.queue_version + 1
    FROM head AS h
    WHERE l.resource_id = h.resource_id AND NOT h.barging
    RETURNING l.lease_id, l.fence, (l.expires_at - clock_timestamp())::interval AS remaining, l.acquired_at
), ended AS (
    UPDATE /*schema.*/resource_lease AS l
    SET ended_at      = least(clock_timestamp(), l.expires_at),
        waiting       = l.waiting - (SELECT count(*) FROM dropped)::integer,
        queue_version = l.queue_version + (SELECT count(*) FROM dropped)
    FROM judged AS j
    WHERE l.resource_id = j.resource_id AND NOT j.again
      AND NOT EXISTS (SELECT FROM head AS h WHERE NOT h.barging)
      AND (sqlc.arg(successor)::text = '' OR EXISTS (SELECT FROM head))
    RETURNING l.ended_at
), over AS (
    SELECT least(h.acquired_at, m.expires_at) AS ended_at FROM handed AS h, mine AS m
    UNION ALL
    SELECT e.ended_at FROM ended AS e
), recorded AS (
    INSERT INTO /*schema.*/lease_history (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended, ticket)
    SELECT m.resource_id, m.fence, m.owner_id, m.lease_id, m.request_id, m.acquired_at, m.expires_at, o.ended_at,
           CASE WHEN o.ended_at < m.expires_at THEN 'released' ELSE 'expired' END, m.ticket
    FROM mine AS m, over AS o
    WHERE (SELECT i.history FROM /*schema.*/installation AS i)
)
SELECT (CASE WHEN j.again THEN 'again'
             WHEN d.lease_id IS NOT NULL THEN 'handed_over'
             WHEN o.ended_at IS NULL THEN 'alone'
             WHEN h.ticket IS NOT NULL THEN 'rung'
             WHEN o.ended_at < m.expires_at THEN 'released'
             ELSE 'expired' END)::text AS outcome,
       (o.ended_at < m.expires_at OR o.ended_at IS NULL)::boolean AS in_time,
       coalesce(h.client_id, m.lease_id)::uuid AS client_id,
       coalesce(h.request_id, m.lease_id)::uuid AS request_id,
       coalesce(h.ticket, 0)::bigint AS ticket,
       coalesce(d.lease_id, m.lease_id)::uuid AS next_lease_id,
       coalesce(d.fence, 0)::bigint AS next_fence,
       coalesce(d.remaining, interval '0')::interval AS next_remaining,
       clock_timestamp()::timestamptz AS database_time,
       (CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
             THEN set_config('synchronous_commit', 'on', true)
             ELSE current_setting('synchronous_commit') END)::text AS synchronous_commit,
       (current_setting('synchronous_standby_names') <> '')::boolean AS waits_for_standby
FROM mine AS m
JOIN judged AS j ON true
LEFT JOIN head AS h ON true
LEFT JOIN handed AS d ON true
LEFT JOIN over AS o ON true;

-- name: BreakLease :one
-- BreakLease ends another's lease, by the exact lease id that the operator saw, with a reason. Zero
-- rows mean that it changed since: look again. The fence still moves forward with the next grant.
-- Who waits is served by the Promote that must follow.
WITH seen AS MATERIALIZED (
    SELECT l.resource_id, l.owner_id, l.lease_id, l.request_id, l.fence, l.acquired_at, l.expires_at, l.ticket
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
    INSERT INTO /*schema.*/lease_history (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended, ended_by, reason, ticket)
    SELECT s.resource_id, s.fence, s.owner_id, s.lease_id, s.request_id, s.acquired_at, s.expires_at, e.ended_at,
           'broken', sqlc.arg(ended_by)::text, sqlc.arg(reason)::text, s.ticket
    FROM seen AS s, ended AS e
)
SELECT s.fence, s.owner_id, e.ended_at::timestamptz AS ended_at FROM seen AS s, ended AS e;

-- name: LockResource :one
-- LockResource holds the row of a resource until the transaction ends, so that a statement after it
-- sees the queue as it is. Zero rows mean that the resource was never acquired.
SELECT l.fence FROM /*schema.*/resource_lease AS l WHERE l.resource_id = sqlc.arg(resource_id)::text FOR UPDATE;
