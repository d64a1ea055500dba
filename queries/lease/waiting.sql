-- name: Join :one
-- Join grants the resource if it is free and nobody is ahead, or puts the request at the end of the
-- line. It waits for the row's lock, so it is ordered against releases: one that comes later finds
-- this waiter.
-- It answers with one row: 'granted'; 'repeated', 'spent' as Acquire; 'joined', with the ticket, how
-- many are ahead, and what the holder has left; 'full', where max_waiting wait already. Zero rows
-- mean that there is no row yet, which Acquire makes. Zero rows and 'held' also mean that another try
-- of this request was at it: ask again. A place that an earlier try took, whose reply was lost, is found and kept.
WITH room AS MATERIALIZED (
    SELECT l.resource_id, l.owner_id, l.lease_id, l.request_id, l.fence, l.acquired_at, l.expires_at, l.ended_at, l.waiting, l.ticket,
           l.ended_at IS NOT NULL OR l.expires_at + l.lock_delay <= clock_timestamp() AS free
    FROM /*schema.*/resource_lease AS l
    WHERE l.resource_id = sqlc.arg(resource_id)::text
      AND l.request_id <> sqlc.arg(request_id)::uuid
      AND l.refused_request_id IS DISTINCT FROM sqlc.arg(request_id)::uuid
      AND l.waiting < sqlc.arg(max_waiting)::integer
      AND NOT EXISTS (
          SELECT FROM /*schema.*/lease_history AS h
          WHERE h.request_id = sqlc.arg(request_id)::uuid AND h.resource_id = l.resource_id)
      AND NOT EXISTS (
          SELECT FROM /*schema.*/lease_waiter AS w
          WHERE w.resource_id = l.resource_id AND w.request_id = sqlc.arg(request_id)::uuid)
    FOR UPDATE OF l
), expired AS (
    INSERT INTO /*schema.*/lease_history (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended, ticket)
    SELECT r.resource_id, r.fence, r.owner_id, r.lease_id, r.request_id, r.acquired_at, r.expires_at, r.expires_at, 'expired', r.ticket
    FROM room AS r
    WHERE r.free AND r.waiting = 0 AND r.ended_at IS NULL AND (SELECT i.history FROM /*schema.*/installation AS i)
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
        ticket      = NULL
    FROM room
    WHERE l.resource_id = room.resource_id AND room.free AND room.waiting = 0
    RETURNING l.lease_id, l.fence, l.owner_id, (l.expires_at - clock_timestamp())::interval AS remaining
), placed AS (
    INSERT INTO /*schema.*/lease_waiter AS w (resource_id, request_id, client_id, owner_id, ttl, lock_delay, barging, joined_at, deadline, lease_id)
    SELECT r.resource_id, sqlc.arg(request_id)::uuid, sqlc.arg(client_id)::uuid, sqlc.arg(owner_id)::text,
           sqlc.arg(ttl)::interval, sqlc.arg(lock_delay)::interval, sqlc.arg(barging)::boolean, clock_timestamp(),
           clock_timestamp() + sqlc.narg(patience)::interval, sqlc.arg(lease_id)::uuid
    FROM room AS r
    WHERE NOT (r.free AND r.waiting = 0)
    ON CONFLICT (resource_id, request_id) DO NOTHING
    RETURNING w.ticket
), counted AS (
    UPDATE /*schema.*/resource_lease AS l
    SET waiting = l.waiting + 1
    FROM placed, room
    WHERE l.resource_id = room.resource_id
    RETURNING l.waiting
), answer AS (
    SELECT 'granted' AS outcome, g.lease_id, g.fence, g.owner_id, g.remaining, 0::bigint AS ticket, 0 AS ahead FROM granted AS g
    UNION ALL
    SELECT 'joined', r.lease_id, r.fence, r.owner_id,
           CASE WHEN r.free THEN interval '0' ELSE r.expires_at - clock_timestamp() END, p.ticket, c.waiting - 1
    FROM placed AS p, counted AS c, room AS r
    UNION ALL
    SELECT CASE WHEN l.request_id = sqlc.arg(request_id)::uuid AND l.ended_at IS NULL AND l.expires_at > clock_timestamp() THEN 'repeated'
                WHEN l.request_id = sqlc.arg(request_id)::uuid OR l.refused_request_id = sqlc.arg(request_id)::uuid
                     OR EXISTS (SELECT FROM /*schema.*/lease_history AS h
                                WHERE h.request_id = sqlc.arg(request_id)::uuid AND h.resource_id = l.resource_id) THEN 'spent'
                WHEN w.ticket IS NOT NULL THEN 'joined'
                WHEN l.waiting >= sqlc.arg(max_waiting)::integer THEN 'full'
                ELSE 'held' END,
           l.lease_id, l.fence, l.owner_id, l.expires_at - clock_timestamp(), coalesce(w.ticket, 0), l.waiting
    FROM /*schema.*/resource_lease AS l
    LEFT JOIN /*schema.*/lease_waiter AS w
           ON w.resource_id = l.resource_id AND w.request_id = sqlc.arg(request_id)::uuid
    WHERE l.resource_id = sqlc.arg(resource_id)::text AND NOT EXISTS (SELECT FROM room)
)
SELECT a.outcome::text AS outcome, a.lease_id::uuid AS lease_id, a.fence::bigint AS fence, a.owner_id::text AS owner_id,
       a.remaining::interval AS remaining, a.ticket::bigint AS ticket, a.ahead::integer AS ahead,
       clock_timestamp()::timestamptz AS database_time,
       -- A place is not worth the wait for the disk, during which nobody could release the resource: whatever it is
       -- granted is committed after it, and so is on disk only together with it. A place that a crash of the server
       -- takes is missed as soon as the client has a session again, and taken anew.
       (CASE WHEN a.outcome = 'joined' THEN set_config('synchronous_commit', 'off', true)
             WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
             THEN set_config('synchronous_commit', 'on', true)
             ELSE current_setting('synchronous_commit') END)::text AS synchronous_commit,
       (current_setting('synchronous_standby_names') <> '')::boolean AS waits_for_standby
FROM answer AS a;

-- name: JoinHeld :one
-- JoinHeld is Join for the common case, at less than half its cost: the resource is held, or others wait
-- already, so that there is nothing to be granted. It takes the place at the end of the line and tells the
-- ticket, how many are ahead, and what the holder has left. Zero rows mean that nothing was done and Join
-- must tell: the resource is free or has no row, the line is full, or the request was granted or abandoned.
-- A request that has a place already is refused as a unique_violation: ask Join then too.
--
-- It is ordered against releases by the row's lock, as Join, and the conditions hold for the row as it is when
-- the lock is there. Where the lease expired meanwhile, the answer says so: the line is to be served.
WITH counted AS (
    UPDATE /*schema.*/resource_lease AS l
    SET waiting = l.waiting + 1
    WHERE l.resource_id = sqlc.arg(resource_id)::text
      AND l.request_id <> sqlc.arg(request_id)::uuid
      AND l.refused_request_id IS DISTINCT FROM sqlc.arg(request_id)::uuid
      AND l.waiting < sqlc.arg(max_waiting)::integer
      AND (l.waiting > 0 OR l.ended_at IS NULL AND l.expires_at + l.lock_delay > clock_timestamp())
      AND NOT EXISTS (
          SELECT FROM /*schema.*/lease_history AS h
          WHERE h.request_id = sqlc.arg(request_id)::uuid AND h.resource_id = l.resource_id)
    RETURNING l.resource_id, l.waiting, l.ended_at, l.expires_at, l.lock_delay
), placed AS (
    INSERT INTO /*schema.*/lease_waiter AS w (resource_id, request_id, client_id, owner_id, ttl, lock_delay, barging, joined_at, deadline, lease_id)
    SELECT c.resource_id, sqlc.arg(request_id)::uuid, sqlc.arg(client_id)::uuid, sqlc.arg(owner_id)::text,
           sqlc.arg(ttl)::interval, sqlc.arg(lock_delay)::interval, sqlc.arg(barging)::boolean, clock_timestamp(),
           clock_timestamp() + sqlc.narg(patience)::interval, sqlc.arg(lease_id)::uuid
    FROM counted AS c
    RETURNING w.ticket
)
SELECT p.ticket, (c.waiting - 1)::integer AS ahead,
       (CASE WHEN c.ended_at IS NOT NULL OR c.expires_at + c.lock_delay <= clock_timestamp() THEN interval '0'
             ELSE c.expires_at - clock_timestamp() END)::interval AS remaining,
       -- As in Join: a place is not worth the wait for the disk.
       set_config('synchronous_commit', 'off', true)::text AS synchronous_commit
FROM counted AS c, placed AS p;

-- name: Leave :one
-- Leave takes a request out of the line. With ticket 0 the request is also kept from joining later,
-- however late the packet of an earlier try arrives. It answers 'left';
-- 'granted', where the request was granted meanwhile and its lease is current: that must be
-- released; or 'absent'. Zero rows mean that there is no such resource.
WITH cur AS MATERIALIZED (
    SELECT l.resource_id, l.request_id, l.lease_id, l.fence, l.ended_at, l.expires_at
    FROM /*schema.*/resource_lease AS l
    WHERE l.resource_id = sqlc.arg(resource_id)::text
    FOR NO KEY UPDATE OF l
), gone AS (
    DELETE FROM /*schema.*/lease_waiter AS w
    USING cur
    WHERE w.resource_id = cur.resource_id AND w.request_id = sqlc.arg(request_id)::uuid
      AND (w.ticket = sqlc.arg(ticket)::bigint OR sqlc.arg(ticket)::bigint = 0)
    RETURNING w.ticket
), counted AS (
    UPDATE /*schema.*/resource_lease AS l
    SET waiting = l.waiting - (SELECT count(*) FROM gone)::integer,
        refused_request_id = CASE WHEN sqlc.arg(ticket)::bigint = 0 AND l.request_id <> sqlc.arg(request_id)::uuid
                                  THEN sqlc.arg(request_id)::uuid ELSE l.refused_request_id END
    FROM cur
    WHERE l.resource_id = cur.resource_id
      AND (sqlc.arg(ticket)::bigint = 0 OR EXISTS (SELECT FROM gone))
)
SELECT (CASE WHEN EXISTS (SELECT FROM gone) THEN 'left'
             WHEN c.request_id = sqlc.arg(request_id)::uuid AND c.ended_at IS NULL AND c.expires_at > clock_timestamp() THEN 'granted'
             ELSE 'absent' END)::text AS outcome,
       c.lease_id, c.fence, (c.expires_at - clock_timestamp())::interval AS remaining
FROM cur AS c;

-- name: Promote :one
-- Promote serves the line of a resource that is free, or whose lease has expired: it records the
-- expiry and grants to the first live waiter, whoever asked, dropping the dead and late before it.
-- It answers 'handed_over' with the new lease, 'rung' where the first waiter is a barging one, or
-- 'free' where nobody live waits. Zero rows mean that the resource is held, that nobody waits, or
-- that somebody is at it: nothing was done.
SELECT p.outcome::text AS outcome,
       coalesce(p.client_id, gen_random_uuid())::uuid AS client_id,
       coalesce(p.request_id, gen_random_uuid())::uuid AS request_id,
       coalesce(p.ticket, 0)::bigint AS ticket,
       coalesce(p.lease_id, gen_random_uuid())::uuid AS next_lease_id,
       coalesce(p.fence, 0)::bigint AS next_fence,
       coalesce(p.expires_at - clock_timestamp(), interval '0')::interval AS next_remaining,
       clock_timestamp()::timestamptz AS database_time,
       CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
            THEN set_config('synchronous_commit', 'on', true) ELSE '' END::text AS synchronous_commit,
       (current_setting('synchronous_standby_names') <> '')::boolean AS waits_for_standby,
       coalesce(p.session_pid, 0)::integer AS session_pid
FROM /*schema.*/lease_pass(sqlc.arg(resource_id)::text, NULL, '') AS p
WHERE p.outcome IS NOT NULL;

-- name: PruneLine :one
-- PruneLine drops the waiters of a resource that are past their deadline or whose client has been
-- silent for its life, and tells how many. It is for a line that is full while the resource is held;
-- a hand-over drops them anyway. Zero rows mean that there is none, and nothing was locked.
WITH cur AS MATERIALIZED (
    SELECT l.resource_id
    FROM /*schema.*/resource_lease AS l
    WHERE l.resource_id = sqlc.arg(resource_id)::text
      AND EXISTS (SELECT FROM /*schema.*/lease_waiter AS w
                  LEFT JOIN /*schema.*/lease_client AS c ON c.client_id = w.client_id
                  WHERE w.resource_id = l.resource_id
                    AND (w.deadline <= clock_timestamp() OR c.alive_until IS NULL OR c.alive_until <= clock_timestamp()))
    FOR NO KEY UPDATE OF l
), dead AS (
    DELETE FROM /*schema.*/lease_waiter AS w
    USING cur
    WHERE w.resource_id = cur.resource_id
      AND (w.deadline <= clock_timestamp()
           OR NOT EXISTS (SELECT FROM /*schema.*/lease_client AS c
                          WHERE c.client_id = w.client_id AND c.alive_until > clock_timestamp()))
    RETURNING w.ticket
), counted AS (
    UPDATE /*schema.*/resource_lease AS l
    SET waiting = l.waiting - (SELECT count(*) FROM dead)::integer
    FROM cur
    WHERE l.resource_id = cur.resource_id AND EXISTS (SELECT FROM dead)
)
SELECT (SELECT count(*) FROM dead)::integer AS dropped FROM cur;

-- name: Watch :many
-- Watch reads how the given waiters stand, one row each, without locks: granted (with the lease),
-- in line, or gone; and what their resource's holder has left (zero or less: it may be taken). Zero
-- rows mean that none of the resources exists. Each waiter is looked up by itself, as in Renew.
SELECT d.request_id::uuid AS request_id,
       (l.request_id = d.request_id AND l.ended_at IS NULL AND l.expires_at > clock_timestamp())::boolean AS granted,
       (w.ticket IS NOT NULL)::boolean AS in_line,
       (w.ticket IS NOT NULL AND w.ticket = (SELECT f.ticket FROM /*schema.*/lease_waiter AS f
                                             WHERE f.resource_id = d.resource_id AND f.ticket > l.served
                                               AND (f.ticket >= 0 OR (SELECT count(*) FROM generate_series(1, f.ticket)) >= 0)
                                             ORDER BY f.ticket LIMIT 1))::boolean AS first,
       l.lease_id, l.fence, l.owner_id,
       (CASE WHEN l.request_id = d.request_id THEN l.expires_at - clock_timestamp()
             WHEN l.ended_at IS NOT NULL THEN interval '0'
             ELSE l.expires_at + l.lock_delay - clock_timestamp() END)::interval AS remaining,
       (current_setting('synchronous_standby_names') <> '')::boolean AS waits_for_standby
FROM (SELECT sqlc.arg(resources)::text[] AS resources, sqlc.arg(tickets)::bigint[] AS tickets, sqlc.arg(requests)::uuid[] AS requests OFFSET 0) AS a
CROSS JOIN LATERAL ROWS FROM (unnest(a.resources), unnest(a.tickets), unnest(a.requests)) AS d(resource_id, ticket, request_id)
CROSS JOIN LATERAL (
    SELECT r.request_id, r.lease_id, r.fence, r.owner_id, r.ended_at, r.expires_at, r.lock_delay, r.served
    FROM /*schema.*/resource_lease AS r
    WHERE r.resource_id = d.resource_id AND (r.waiting >= 0 OR (SELECT count(*) FROM generate_series(1, r.waiting)) >= 0)
    LIMIT 1
) AS l
LEFT JOIN LATERAL (
    SELECT p.ticket FROM /*schema.*/lease_waiter AS p
    WHERE p.resource_id = d.resource_id AND p.ticket = d.ticket AND p.request_id = d.request_id
      AND (p.ticket >= 0 OR (SELECT count(*) FROM generate_series(1, p.ticket)) >= 0)
    LIMIT 1
) AS w ON true;

-- name: WatchOne :one
-- WatchOne is Watch of one waiter, without what it takes to have several. Zero rows mean that the resource does not exist.
SELECT sqlc.arg(request_id)::uuid AS request_id,
       (l.request_id = sqlc.arg(request_id)::uuid AND l.ended_at IS NULL AND l.expires_at > clock_timestamp())::boolean AS granted,
       (w.ticket IS NOT NULL)::boolean AS in_line,
       (w.ticket IS NOT NULL AND w.ticket = (SELECT f.ticket FROM /*schema.*/lease_waiter AS f
                                             WHERE f.resource_id = l.resource_id AND f.ticket > l.served ORDER BY f.ticket LIMIT 1))::boolean AS first,
       l.lease_id, l.fence, l.owner_id,
       (CASE WHEN l.request_id = sqlc.arg(request_id)::uuid THEN l.expires_at - clock_timestamp()
             WHEN l.ended_at IS NOT NULL THEN interval '0'
             ELSE l.expires_at + l.lock_delay - clock_timestamp() END)::interval AS remaining,
       (current_setting('synchronous_standby_names') <> '')::boolean AS waits_for_standby
FROM /*schema.*/resource_lease AS l
LEFT JOIN /*schema.*/lease_waiter AS w
       ON w.resource_id = l.resource_id AND w.ticket = sqlc.arg(ticket)::bigint AND w.request_id = sqlc.arg(request_id)::uuid
WHERE l.resource_id = sqlc.arg(resource_id)::text;

-- name: Ghosts :many
-- Ghosts looks after leases that were handed over a moment ago and never renewed since: a hand-over makes them
-- for exactly their TTL. gone tells that the
-- client's session lock is free: the lease lies with a process that has died. One that dies in the instant
-- of the hand-over may still look alive to that, until the server has noticed. Zero rows mean that all of
-- them are over or were renewed: there is nothing more to look after. Each lease is looked up by itself, as
-- in Renew.
SELECT l.lease_id,
       (CASE WHEN c.session_key IS NULL THEN false ELSE pg_try_advisory_xact_lock_shared(c.session_key) END)::boolean AS gone
FROM (SELECT sqlc.arg(resources)::text[] AS resources, sqlc.arg(leases)::uuid[] AS leases, sqlc.arg(clients)::uuid[] AS clients OFFSET 0) AS a
CROSS JOIN LATERAL ROWS FROM (unnest(a.resources), unnest(a.leases), unnest(a.clients)) AS d(resource_id, lease_id, client_id)
CROSS JOIN LATERAL (
    SELECT r.lease_id, r.ended_at, r.expires_at, r.acquired_at, r.ttl
    FROM /*schema.*/resource_lease AS r
    WHERE r.resource_id = d.resource_id AND r.lease_id = d.lease_id
      AND (r.waiting >= 0 OR (SELECT count(*) FROM generate_series(1, r.waiting)) >= 0)
    LIMIT 1
) AS l
CROSS JOIN LATERAL (
    SELECT k.session_key FROM /*schema.*/lease_client AS k
    WHERE k.client_id = d.client_id AND (k.alive_until IS NOT NULL OR (SELECT count(*) FROM generate_series(1, k.session_key)) >= 0)
    LIMIT 1
) AS c
WHERE l.ended_at IS NULL AND l.expires_at > clock_timestamp() AND l.expires_at = l.acquired_at + l.ttl;

-- name: GhostOne :one
-- GhostOne is Ghosts of one lease, which is planned once. Zero rows mean that it is over or was renewed.
SELECT (CASE WHEN c.session_key IS NULL THEN false ELSE pg_try_advisory_xact_lock_shared(c.session_key) END)::boolean AS gone
FROM /*schema.*/resource_lease AS l, /*schema.*/lease_client AS c
WHERE l.resource_id = sqlc.arg(resource_id)::text AND l.lease_id = sqlc.arg(lease_id)::uuid AND c.client_id = sqlc.arg(client_id)::uuid
  AND l.ended_at IS NULL AND l.expires_at > clock_timestamp() AND l.expires_at = l.acquired_at + l.ttl;

-- name: Bury :one
-- Bury ends a lease that Ghosts told of, if it still lies with a client that is gone, and records why.
-- Who waits is served by the Promote that must follow. Zero rows mean that the lease is over, was
-- renewed, or that its client lives: nothing was done.
WITH ghost AS MATERIALIZED (
    SELECT l.resource_id, l.owner_id, l.lease_id, l.request_id, l.fence, l.acquired_at, l.expires_at, l.ticket
    FROM /*schema.*/resource_lease AS l
    WHERE l.resource_id = sqlc.arg(resource_id)::text AND l.lease_id = sqlc.arg(lease_id)::uuid AND l.ended_at IS NULL
      AND l.expires_at > clock_timestamp() AND l.expires_at = l.acquired_at + l.ttl
    FOR UPDATE OF l
), gone AS MATERIALIZED (
    SELECT g.resource_id
    FROM ghost AS g, /*schema.*/lease_client AS c
    WHERE c.client_id = sqlc.arg(client_id)::uuid
      AND CASE WHEN c.session_key IS NULL THEN false ELSE pg_try_advisory_xact_lock_shared(c.session_key) END
), ended AS (
    UPDATE /*schema.*/resource_lease AS l
    SET ended_at = least(clock_timestamp(), l.expires_at)
    FROM gone
    WHERE l.resource_id = gone.resource_id
    RETURNING l.ended_at
), recorded AS (
    INSERT INTO /*schema.*/lease_history (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended, reason, ticket)
    SELECT g.resource_id, g.fence, g.owner_id, g.lease_id, g.request_id, g.acquired_at, g.expires_at, e.ended_at,
           CASE WHEN e.ended_at < g.expires_at THEN 'released' ELSE 'expired' END, 'its process died as it was served', g.ticket
    FROM ghost AS g, ended AS e
    WHERE (SELECT i.history FROM /*schema.*/installation AS i)
)
SELECT e.ended_at::timestamptz AS ended_at FROM ended AS e;

-- name: Beat :exec
-- Beat says that a waiting client lives, for as long as it says. One row a client.
INSERT INTO /*schema.*/lease_client AS c (client_id, session_key, session_pid, alive_until)
VALUES (sqlc.arg(client_id)::uuid, sqlc.narg(session_key)::bigint, sqlc.narg(session_pid)::integer, clock_timestamp() + sqlc.arg(life)::interval)
ON CONFLICT (client_id) DO UPDATE
SET session_key = sqlc.narg(session_key)::bigint, session_pid = sqlc.narg(session_pid)::integer, alive_until = clock_timestamp() + sqlc.arg(life)::interval;

-- name: Rousable :one
-- Rousable tells whether all who hand leases over may rouse this session out of lease_await: each role that may log in, or is
-- the current one, and may change the leases may cancel it. The owner of the tables is taken for one who does not, unless it is
-- the current role. Where a standby is waited for nobody rouses. It always has one row.
SELECT pg_backend_pid()::integer AS session_pid,
       (current_setting('synchronous_standby_names') <> '')::boolean AS waits_for_standby,
       coalesce((SELECT min(r.rolname::text)
        FROM pg_catalog.pg_roles AS r, pg_catalog.pg_class AS l, pg_catalog.pg_roles AS me
        WHERE l.oid = sqlc.arg(lease_table)::text::regclass AND me.rolname = session_user
          AND NOT r.rolsuper AND (r.rolname = current_user OR r.rolcanlogin AND r.oid <> l.relowner)
          AND has_table_privilege(r.oid, l.oid, 'UPDATE')
          AND (me.rolsuper OR NOT pg_has_role(r.oid, me.oid, 'USAGE') AND NOT pg_has_role(r.oid, 'pg_signal_backend', 'USAGE'))), '')::text AS refused;

-- name: Await :many
-- Await waits in the server, in lease_await, for a grant to one of the client's waiters. The last row is of no grant; zero
-- rows cannot be.
SELECT coalesce(a.resource_id, '')::text AS resource_id,
       coalesce(a.lease_id, '00000000-0000-0000-0000-000000000000')::uuid AS lease_id,
       coalesce(a.fence, 0)::bigint AS fence,
       coalesce(a.remaining, interval '0')::interval AS remaining,
       coalesce(a.roused, false)::boolean AS roused,
       coalesce(a.slept, false)::boolean AS slept,
       coalesce(a.waits_for_standby, false)::boolean AS waits_for_standby
FROM /*schema.*/lease_await(sqlc.arg(session_key)::bigint, sqlc.arg(resources)::text[], sqlc.arg(leases)::uuid[], sqlc.arg(most)::interval) AS a;

-- name: Rouse :one
-- Rouse ends the sleep of a client's session, and tells whether it did. It always has one row.
SELECT /*schema.*/lease_rouse(sqlc.arg(client_id)::uuid)::boolean AS roused;

-- name: Farewell :exec
-- Farewell removes a client that waits for nothing any more, and the rows of clients that died long
-- ago. Waiters of theirs are skipped all the same: a waiter without a client is dead.
DELETE FROM /*schema.*/lease_client AS c
WHERE c.client_id = sqlc.arg(client_id)::uuid OR c.alive_until < clock_timestamp() - interval '1 hour';

-- name: Line :many
-- Line lists who waits for a resource, in order. Zero rows mean that nobody does.
SELECT w.ticket, w.request_id, w.owner_id, w.barging, (clock_timestamp() - w.joined_at)::interval AS waited,
       coalesce(c.alive_until > clock_timestamp() AND coalesce(w.deadline > clock_timestamp(), true), false)::boolean AS alive
FROM /*schema.*/lease_waiter AS w
LEFT JOIN /*schema.*/lease_client AS c ON c.client_id = w.client_id
WHERE w.resource_id = sqlc.arg(resource_id)::text
ORDER BY w.ticket
LIMIT sqlc.arg(max_rows)::int;

-- name: MeanHold :one
-- MeanHold is the mean length of the last tenures of a resource, of twenty at most; zero where none
-- is recorded. It always has one row; zero cannot be.
SELECT coalesce(avg(t.ended_at - t.acquired_at), interval '0')::interval AS mean
FROM (SELECT h.ended_at, h.acquired_at FROM /*schema.*/lease_history AS h
      WHERE h.resource_id = sqlc.arg(resource_id)::text AND h.fence IS NOT NULL
      ORDER BY h.fence DESC LIMIT 20) AS t;
