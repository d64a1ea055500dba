-- name: ReleaseUnawaited :one
-- ReleaseUnawaited is Release for the common case, at half its cost: nobody waits for the resource.
-- in_time is false where the lease had expired and nobody had taken it. Zero rows mean that nothing
-- was done: somebody waits, or the lease was over already; Release tells.
--
-- It grants nothing, so its commit may be as asynchronous as the session likes.
WITH mine AS MATERIALIZED (
    SELECT l.resource_id
    FROM /*schema.*/resource_lease AS l
    WHERE l.resource_id = sqlc.arg(resource_id)::text AND l.lease_id = sqlc.arg(lease_id)::uuid AND l.ended_at IS NULL AND l.waiting = 0
    FOR UPDATE OF l
), ended AS (
    UPDATE /*schema.*/resource_lease AS l
    SET ended_at = least(clock_timestamp(), l.expires_at)
    FROM mine
    WHERE l.resource_id = mine.resource_id
    RETURNING l.resource_id, l.fence, l.owner_id, l.lease_id, l.request_id, l.acquired_at, l.expires_at, l.ended_at, l.ticket
), recorded AS (
    INSERT INTO /*schema.*/lease_history (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended, ticket)
    SELECT e.resource_id, e.fence, e.owner_id, e.lease_id, e.request_id, e.acquired_at, e.expires_at, e.ended_at,
           CASE WHEN e.ended_at < e.expires_at THEN 'released' ELSE 'expired' END, e.ticket
    FROM ended AS e
    WHERE (SELECT i.history FROM /*schema.*/installation AS i)
)
SELECT (e.ended_at < e.expires_at)::boolean AS in_time FROM ended AS e;

-- name: Release :one
-- Release ends the tenure of exactly this lease and records it. Where somebody waits it hands the
-- resource over in the same statement: the first live waiter gets the next lease, and the dead and
-- late ones before it are dropped. With a successor only a waiter of that owner name is looked for.
-- It answers 'released'; 'handed_over', with the new lease; 'rung', when it was released and the
-- first waiter is a barging one that should be told; or 'alone' when the named successor does not
-- wait, and nothing was done. in_time is false where the lease had expired and nobody had taken it.
-- Zero rows mean that the lease was over already: harmless, and nothing of a newer lease is touched.
--
-- Whether anybody waits stands in the locked row, and lease_next sees the line as it is under that
-- lock, so no waiter is missed. The lock is the strongest, so that a guarded transaction is waited
-- for before the clock is read.
WITH mine AS MATERIALIZED (
    SELECT l.resource_id, l.owner_id, l.lease_id, l.request_id, l.fence, l.acquired_at, l.expires_at, l.waiting, l.ticket, l.served
    FROM /*schema.*/resource_lease AS l
    WHERE l.resource_id = sqlc.arg(resource_id)::text AND l.lease_id = sqlc.arg(lease_id)::uuid AND l.ended_at IS NULL
    FOR UPDATE OF l
), head AS MATERIALIZED (
    SELECT m.resource_id, n.dropped::integer AS dropped, n.served::bigint AS served, n.ticket::bigint AS ticket, n.request_id::uuid AS request_id,
           n.client_id::uuid AS client_id, n.owner_id::text AS owner_id, n.ttl::interval AS ttl,
           n.lock_delay::interval AS lock_delay, n.lease_id::uuid AS lease_id, (n.ticket IS NOT NULL AND NOT n.barging)::boolean AS granted
    FROM mine AS m CROSS JOIN LATERAL /*schema.*/lease_next(m.resource_id, m.served, sqlc.arg(successor)::text) AS n
    WHERE m.waiting > 0
), changed AS (
    UPDATE /*schema.*/resource_lease AS l
    SET owner_id    = CASE WHEN h.granted THEN h.owner_id ELSE l.owner_id END,
        lease_id    = CASE WHEN h.granted THEN h.lease_id ELSE l.lease_id END,
        request_id  = CASE WHEN h.granted THEN h.request_id ELSE l.request_id END,
        fence       = CASE WHEN h.granted THEN greatest(l.fence + 1, (SELECT f.floor FROM /*schema.*/fence_floor AS f)) ELSE l.fence END,
        acquired_at = CASE WHEN h.granted THEN clock_timestamp() ELSE l.acquired_at END,
        expires_at  = CASE WHEN h.granted THEN clock_timestamp() + h.ttl ELSE l.expires_at END,
        ttl         = CASE WHEN h.granted THEN h.ttl ELSE l.ttl END,
        lock_delay  = CASE WHEN h.granted THEN h.lock_delay ELSE l.lock_delay END,
        ticket      = CASE WHEN h.granted THEN h.ticket ELSE l.ticket END,
        ended_at    = CASE WHEN h.granted THEN NULL
                           WHEN sqlc.arg(successor)::text = '' OR h.ticket IS NOT NULL THEN least(clock_timestamp(), l.expires_at) END,
        waiting     = l.waiting - coalesce(h.dropped, 0),
        served      = coalesce(h.served, l.served)
    FROM mine AS m LEFT JOIN head AS h ON true
    WHERE l.resource_id = m.resource_id
    RETURNING coalesce(h.granted, false) AS granted, h.client_id, h.request_id, h.ticket, l.lease_id, l.fence,
              (l.expires_at - clock_timestamp())::interval AS remaining,
              CASE WHEN h.granted THEN least(l.acquired_at, m.expires_at) ELSE l.ended_at END AS over_at
), recorded AS (
    INSERT INTO /*schema.*/lease_history (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended, ticket)
    SELECT m.resource_id, m.fence, m.owner_id, m.lease_id, m.request_id, m.acquired_at, m.expires_at, c.over_at,
           CASE WHEN c.over_at < m.expires_at THEN 'released' ELSE 'expired' END, m.ticket
    FROM mine AS m, changed AS c
    WHERE c.over_at IS NOT NULL AND (SELECT i.history FROM /*schema.*/installation AS i)
)
SELECT (CASE WHEN c.granted THEN 'handed_over'
             WHEN c.over_at IS NULL THEN 'alone'
             WHEN c.ticket IS NOT NULL THEN 'rung'
             ELSE 'released' END)::text AS outcome,
       coalesce(c.over_at < m.expires_at, true)::boolean AS in_time,
       coalesce(c.client_id, m.lease_id)::uuid AS client_id,
       coalesce(c.request_id, m.lease_id)::uuid AS request_id,
       coalesce(c.ticket, 0)::bigint AS ticket,
       c.lease_id::uuid AS next_lease_id,
       c.fence::bigint AS next_fence,
       c.remaining::interval AS next_remaining,
       -- What is sent to the waiter, in this session, once this is committed; '' where there is nobody to be told.
       set_config('pglease.ring', CASE WHEN c.granted AND c.client_id <> sqlc.arg(client_id)::uuid
           THEN concat('pglease_', replace(c.client_id::text, '-', ''), ' ', lpad(to_hex(c.ticket), 16, '0'),
                       CASE WHEN current_setting('synchronous_standby_names') = ''
                            THEN concat(lpad(to_hex(c.fence), 16, '0'), left(encode(sha256(uuid_send(c.lease_id)), 'hex'), 32)) END)
           ELSE '' END, false)::text AS ring,
       clock_timestamp()::timestamptz AS database_time,
       (CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
             THEN set_config('synchronous_commit', 'on', true)
             ELSE current_setting('synchronous_commit') END)::text AS synchronous_commit,
       (current_setting('synchronous_standby_names') <> '')::boolean AS waits_for_standby
FROM mine AS m, changed AS c;

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
