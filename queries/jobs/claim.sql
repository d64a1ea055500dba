-- name: Claim :many
-- Claim takes up to max_jobs jobs of a queue that are due, by priority, time to run and id. Zero
-- rows mean that none is due, or that others have locked those that are.
--
-- The rows are locked and counted in a CTE that is materialised: a subquery in the WHERE of the
-- UPDATE may be run once for each row by a nested loop, and then takes more than its LIMIT. Each
-- priority is looked up by itself, so that jobs of the future are never walked over, and from a
-- time to run on, so that what was claimed just before, and is in the index until the next vacuum,
-- is not walked over either. The array of
-- ids, without the state beside it, makes the UPDATE go by primary key whatever the planner believes of
-- the LIMIT: with that it was seen to go by the index of the state, and walk.
--
-- A plan may be older than most of the rows: it is kept, and while the table is small a walk is the
-- cheapest. So conditions end with job_dear, which is never run: it makes each row that is looked at
-- dear to the planner. And each CASE, which always takes its first way, hides the queue and the LIMIT
-- from it: a plan for known ones looks cheaper than the one for any, so that each claim would be
-- planned anew, which takes longer than the claim.
WITH due AS MATERIALIZED (
    SELECT h.id
    FROM (VALUES (2::smallint, 1), (1::smallint, 2), (0::smallint, 3), (-1::smallint, 4), (-2::smallint, 5)) AS p(priority, place)
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM /*schema.*/job AS j
        WHERE j.queue = CASE WHEN p.place IS NOT NULL THEN sqlc.arg(queue)::text END AND j.state = 'ready' AND j.priority = p.priority
          AND j.run_at >= (sqlc.arg(froms)::timestamptz[])[p.place] AND j.run_at <= (SELECT clock_timestamp())
          AND (j.attempt >= 0 OR /*schema.*/job_dear())
        ORDER BY j.run_at, j.id
        LIMIT CASE WHEN p.place IS NOT NULL THEN sqlc.arg(max_jobs)::int END
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ) AS h
    LIMIT CASE WHEN clock_timestamp() IS NOT NULL THEN sqlc.arg(max_jobs)::int END
)
UPDATE /*schema.*/job AS j
SET state      = 'running',
    attempt    = j.attempt + 1,
    fence      = greatest(j.fence + 1, (SELECT f.floor FROM /*schema.*/job_fence_floor AS f)),
    worker_id  = sqlc.arg(worker_id)::text,
    claimed_at = clock_timestamp(),
    expires_at = clock_timestamp() + sqlc.arg(ttl)::interval,
    unique_key = CASE WHEN NOT j.unique_waits THEN j.unique_key END
WHERE j.id = ANY(ARRAY(SELECT d.id FROM due AS d)) AND (j.attempt >= 0 OR /*schema.*/job_dear())
RETURNING j.id, j.priority::smallint AS priority, j.run_at, j.attempt, j.max_attempts, j.fence, coalesce(j.partition_key, '')::text AS partition_key,
          j.generation, j.created_at, j.claimed_at::timestamptz AS claimed_at, coalesce(j.last_error, '')::text AS last_error, j.payload;

-- name: CompleteAndClaim :many
-- CompleteAndClaim is CompleteOne and Claim in one statement and one commit. It always has one row:
-- ended says whether the claim was ended, or is over; an id of 0 that no job was claimed. The end
-- comes first, which alone may wait for a lock; what is claimed is never waited for.
WITH ended AS (
    UPDATE /*schema.*/job AS j
    SET state       = 'done',
        finished_at = clock_timestamp(),
        expires_at  = NULL,
        unique_key  = CASE WHEN j.unique_until > clock_timestamp() THEN j.unique_key END
    WHERE j.id = sqlc.arg(id)::bigint AND j.fence = sqlc.arg(fence)::bigint AND j.state = 'running' AND (j.attempt >= 0 OR /*schema.*/job_dear())
    RETURNING j.id
), due AS MATERIALIZED (
    SELECT h.id
    FROM (VALUES (2::smallint, 1), (1::smallint, 2), (0::smallint, 3), (-1::smallint, 4), (-2::smallint, 5)) AS p(priority, place)
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM /*schema.*/job AS j
        WHERE j.queue = CASE WHEN p.place IS NOT NULL THEN sqlc.arg(queue)::text END AND j.state = 'ready' AND j.priority = p.priority
          AND j.run_at >= (sqlc.arg(froms)::timestamptz[])[p.place] AND j.run_at <= (SELECT clock_timestamp())
          AND (j.attempt >= 0 OR /*schema.*/job_dear())
        ORDER BY j.run_at, j.id
        LIMIT CASE WHEN p.place IS NOT NULL THEN sqlc.arg(max_jobs)::int END
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ) AS h
    LIMIT CASE WHEN clock_timestamp() IS NOT NULL THEN sqlc.arg(max_jobs)::int END
), claimed AS (
    UPDATE /*schema.*/job AS j
    SET state      = 'running',
        attempt    = j.attempt + 1,
        fence      = greatest(j.fence + 1, (SELECT f.floor FROM /*schema.*/job_fence_floor AS f)),
        worker_id  = sqlc.arg(worker_id)::text,
        claimed_at = clock_timestamp(),
        expires_at = clock_timestamp() + sqlc.arg(ttl)::interval,
        unique_key = CASE WHEN NOT j.unique_waits THEN j.unique_key END
    WHERE j.id = ANY(ARRAY(SELECT d.id FROM due AS d)) AND (j.attempt >= 0 OR /*schema.*/job_dear())
    RETURNING j.id, j.priority, j.run_at, j.attempt, j.max_attempts, j.fence, j.partition_key, j.generation, j.created_at, j.claimed_at, j.last_error, j.payload
)
SELECT (e.rows > 0)::boolean AS ended, coalesce(c.id, 0)::bigint AS id, coalesce(c.priority, 0)::smallint AS priority,
       coalesce(c.run_at, timestamptz '1970-01-01 00:00:00+00')::timestamptz AS run_at, coalesce(c.attempt, 0)::int AS attempt,
       coalesce(c.max_attempts, 0)::int AS max_attempts, coalesce(c.fence, 0)::bigint AS fence, coalesce(c.partition_key, '')::text AS partition_key,
       coalesce(c.generation, 0)::bigint AS generation, coalesce(c.created_at, timestamptz '1970-01-01 00:00:00+00')::timestamptz AS created_at,
       coalesce(c.claimed_at, timestamptz '1970-01-01 00:00:00+00')::timestamptz AS claimed_at,
       coalesce(c.last_error, '')::text AS last_error, coalesce(c.payload, 'null'::json)::json AS payload
FROM (SELECT count(*) AS rows FROM ended) AS e
LEFT JOIN claimed AS c ON true;

-- name: Extend :many
-- Extend gives running claims their time again. It locks by id and skips rows that somebody has
-- locked. A claim without a row in the answer is over, or its row was locked: ClaimStates tells.
--
-- Each row is looked up by itself: a join was seen to walk over all that runs. The OFFSET hides the
-- arrays' lengths from the planner, and job_dear stands here for the same reason as in Claim.
WITH mine AS MATERIALIZED (
    SELECT h.id
    FROM (SELECT u.id, u.fence
          FROM (SELECT sqlc.arg(ids)::bigint[] AS ids, sqlc.arg(fences)::bigint[] AS fences OFFSET 0) AS a,
              ROWS FROM (unnest(a.ids), unnest(a.fences)) AS u(id, fence)
          ORDER BY u.id) AS d
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM /*schema.*/job AS j
        WHERE j.id = d.id AND j.fence = d.fence AND j.state = 'running' AND (j.attempt >= 0 OR /*schema.*/job_dear())
        LIMIT 1
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ) AS h
)
UPDATE /*schema.*/job AS j
SET expires_at = greatest(j.expires_at, clock_timestamp() + sqlc.arg(ttl)::interval)
WHERE j.id = ANY(ARRAY(SELECT m.id FROM mine AS m)) AND (j.attempt >= 0 OR /*schema.*/job_dear())
RETURNING j.id, j.fence, (j.expires_at - clock_timestamp())::interval AS remaining;

-- name: ClaimStates :many
-- ClaimStates tells what became of claims that a step did not touch. It has one row for each claim
-- that is asked about; state is empty where the job is gone. It reads without locks, and looks each
-- job up by itself.
SELECT d.id::bigint AS id, coalesce(j.state, '')::text AS state, coalesce(j.fence, 0)::bigint AS fence,
       coalesce(j.attempt, 0)::int AS attempt, coalesce(j.worker_id, '')::text AS worker_id
FROM (SELECT sqlc.arg(ids)::bigint[] AS ids OFFSET 0) AS a
CROSS JOIN LATERAL unnest(a.ids) AS d(id)
LEFT JOIN LATERAL (
    SELECT r.state, r.fence, r.attempt, r.worker_id FROM /*schema.*/job AS r
    WHERE r.id = d.id AND (r.attempt >= 0 OR /*schema.*/job_dear())
    LIMIT 1
) AS j ON true;

-- name: Reap :many
-- Reap ends the claims whose time is over: the job is ready at once, or parked after its last
-- attempt. Zero rows mean that there were none. It locks by id and skips what is locked, so
-- reapers, claimers and heartbeats never wait for each other.
--
-- It reads all that runs, by the index of that. One by expires_at would be smaller to read, but each
-- heartbeat would have to write to it, and to all other indexes too: no update would be HOT any more.
-- The clock is read once; a claim that is given time while this waits is looked at again.
WITH dead AS MATERIALIZED (
    SELECT j.id
    FROM /*schema.*/job AS j
    WHERE j.state = 'running' AND j.expires_at < (SELECT clock_timestamp())
    ORDER BY j.id
    LIMIT sqlc.arg(max_jobs)::int
    FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE /*schema.*/job AS j
SET state      = CASE WHEN j.attempt >= j.max_attempts THEN 'parked' ELSE 'ready' END,
    run_at     = clock_timestamp(),
    expires_at = NULL,
    last_error = format('attempt %s was cut off: its worker %s was not heard of any more', j.attempt, j.worker_id)
WHERE j.id = ANY(ARRAY(SELECT d.id FROM dead AS d)) AND (j.attempt >= 0 OR /*schema.*/job_dear())
RETURNING j.id, j.queue::text AS queue, j.state::text AS state, j.attempt, j.fence, j.worker_id::text AS worker_id;
