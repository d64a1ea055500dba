-- name: CompleteOne :one
-- CompleteOne ends a job under exactly this claim. Zero rows mean that the claim is over, perhaps
-- because it was completed before: ClaimStates tells.
UPDATE /*schema.*/job AS j
SET state       = 'done',
    finished_at = clock_timestamp(),
    expires_at  = NULL,
    unique_key  = CASE WHEN j.unique_until > clock_timestamp() THEN j.unique_key END
WHERE j.id = sqlc.arg(id)::bigint AND j.fence = sqlc.arg(fence)::bigint AND j.state = 'running'
RETURNING j.id;

-- name: Complete :many
-- Complete is CompleteOne for many claims; rows are looked up and locked one by one, by id, so that
-- two who complete never wait in a circle. A claim without a row in the answer is over.
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
        FOR NO KEY UPDATE OF j
    ) AS h
)
UPDATE /*schema.*/job AS j
SET state       = 'done',
    finished_at = clock_timestamp(),
    expires_at  = NULL,
    unique_key  = CASE WHEN j.unique_until > clock_timestamp() THEN j.unique_key END
WHERE j.id = ANY(ARRAY(SELECT m.id FROM mine AS m)) AND (j.attempt >= 0 OR /*schema.*/job_dear())
RETURNING j.id, j.fence;

-- name: Fail :one
-- Fail ends an attempt under exactly this claim: the job is ready after the delay, or parked where
-- that was the last attempt or park is set. Zero rows mean that the claim is over.
WITH mine AS MATERIALIZED (
    SELECT j.id
    FROM /*schema.*/job AS j
    WHERE j.id = sqlc.arg(id)::bigint AND j.fence = sqlc.arg(fence)::bigint AND j.state = 'running'
    FOR NO KEY UPDATE OF j
)
UPDATE /*schema.*/job AS j
SET state      = CASE WHEN sqlc.arg(park)::boolean OR j.attempt >= j.max_attempts THEN 'parked' ELSE 'ready' END,
    run_at     = clock_timestamp() + sqlc.arg(delay)::interval,
    expires_at = NULL,
    last_error = sqlc.arg(last_error)::text
FROM mine
WHERE j.id = mine.id
RETURNING j.state::text AS state;

-- name: PutBack :many
-- PutBack makes the jobs of these claims ready again and takes back that the attempt was counted:
-- after the delay, or at their old time to run where it is zero. A claim without a row in the
-- answer is over.
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
        FOR NO KEY UPDATE OF j
    ) AS h
)
UPDATE /*schema.*/job AS j
SET state      = 'ready',
    attempt    = j.attempt - 1,
    run_at     = CASE WHEN sqlc.arg(delay)::interval > interval '0' THEN clock_timestamp() + sqlc.arg(delay)::interval ELSE j.run_at END,
    expires_at = NULL
WHERE j.id = ANY(ARRAY(SELECT m.id FROM mine AS m)) AND (j.attempt >= 0 OR /*schema.*/job_dear())
RETURNING j.id, j.fence;
