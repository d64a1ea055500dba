-- name: ReleaseUnawaited :one
-- ReleaseUnawaited is Release for the common case, at half its cost: nobody waits for the resource.
-- in_time is false where the lease had expired and nobody had taken it. Zero rows mean that nothing
-- was done: somebody waits, or the lease was over already, or the row was changed while its lock was waited for and
-- so is not where it was found; Release tells.
--
-- It grants nothing, so its commit does not wait for the disk, nor for a standby: a release makes the next grant come
-- sooner, and the TTL frees the resource where a crash took it. Where that would be more than a minute away, the
-- commit waits as the session likes. The next grant waits for the disk, and so for this. The lock comes first and is the
-- strongest: one UPDATE alone has a tenth fewer instructions, but would not wait for a guarded transaction of this
-- lease, whose writes would then be later than the end that is on record.
WITH ended AS (
    UPDATE /*schema.*/resource_lease AS l
    SET ended_at = least(clock_timestamp(), l.expires_at)
    WHERE l.ctid = (
        SELECT r.ctid
        FROM /*schema.*/resource_lease AS r
        WHERE r.resource_id = sqlc.arg(resource_id)::text AND r.lease_id = sqlc.arg(lease_id)::uuid AND r.ended_at IS NULL AND r.waiting = 0
        FOR UPDATE OF r)
    RETURNING l.resource_id, l.fence, l.owner_id, l.lease_id, l.request_id, l.acquired_at, l.expires_at, l.ended_at, l.ticket
), recorded AS (
    INSERT INTO /*schema.*/lease_history (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended, ticket)
    SELECT e.resource_id, e.fence, e.owner_id, e.lease_id, e.request_id, e.acquired_at, e.expires_at, e.ended_at,
           CASE WHEN e.ended_at < e.expires_at THEN 'released' ELSE 'expired' END, e.ticket
    FROM ended AS e
    WHERE (SELECT i.history FROM /*schema.*/installation AS i)
)
SELECT (e.ended_at < e.expires_at)::boolean AS in_time,
       (CASE WHEN e.expires_at - e.ended_at <= interval '1 minute' THEN set_config('synchronous_commit', 'off', true) ELSE '' END)::text AS synchronous_commit
FROM ended AS e;

-- name: ReleaseUnrung :one
-- ReleaseUnrung ends the tenure of exactly this lease and records it. Where somebody waits it hands the
-- resource over in the same statement: the first live waiter gets the next lease, and the dead and
-- late ones before it are dropped. With a successor only a waiter of that owner name is looked for.
-- It answers 'released'; 'handed_over', with the new lease; 'rung', when it was released and the
-- first waiter is a barging one that should be told; or 'alone' when the named successor does not
-- wait, and nothing was done. in_time is false where the lease had expired and nobody had taken it.
-- Zero rows mean that the lease was over already: harmless, and nothing of a newer lease is touched.
-- Whoever was served is to be told; the procedure lease_release does all of this and tells them too.
--
-- The lock is the strongest, so that a guarded transaction is waited for before the clock is read.
-- Where nothing is granted, the commit may be as asynchronous as the session likes.
SELECT p.outcome::text AS outcome, p.in_time::boolean AS in_time,
       coalesce(p.client_id, sqlc.arg(lease_id)::uuid)::uuid AS client_id,
       coalesce(p.request_id, sqlc.arg(lease_id)::uuid)::uuid AS request_id,
       coalesce(p.ticket, 0)::bigint AS ticket,
       coalesce(p.lease_id, sqlc.arg(lease_id)::uuid)::uuid AS next_lease_id,
       coalesce(p.fence, 0)::bigint AS next_fence,
       coalesce(p.expires_at - clock_timestamp(), interval '0')::interval AS next_remaining,
       CASE WHEN p.outcome = 'handed_over' AND current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
            THEN set_config('synchronous_commit', 'on', true) ELSE '' END::text AS synchronous_commit,
       (current_setting('synchronous_standby_names') <> '')::boolean AS waits_for_standby,
       coalesce(p.session_pid, 0)::integer AS session_pid
FROM /*schema.*/lease_pass(sqlc.arg(resource_id)::text, sqlc.arg(lease_id)::uuid, sqlc.arg(successor)::text) AS p
WHERE p.outcome IS NOT NULL;

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
