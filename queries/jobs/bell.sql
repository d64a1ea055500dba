-- name: WaitAtBell :exec
-- WaitAtBell says that a worker process has nothing to do and listens.
INSERT INTO /*schema.*/job_bell AS b (worker_id, queue, waits)
VALUES (sqlc.arg(worker_id)::uuid, sqlc.arg(queue)::text, true)
ON CONFLICT (worker_id) DO UPDATE SET waits = true, seen_at = clock_timestamp();

-- name: LeaveBell :exec
-- LeaveBell takes a worker process off, and those that were not seen for ten minutes.
DELETE FROM /*schema.*/job_bell AS b
WHERE b.worker_id = sqlc.arg(worker_id)::uuid OR b.seen_at < clock_timestamp() - interval '10 minutes';

-- name: Ring :many
-- Ring wakes workers of a queue that wait, each once: it does not wait any more. Zero rows mean
-- that nobody waits; then nothing is written. It needs no more durability than a hint does.
WITH waiting AS MATERIALIZED (
    SELECT b.worker_id
    FROM /*schema.*/job_bell AS b
    WHERE b.queue = sqlc.arg(queue)::text AND b.waits AND b.seen_at > clock_timestamp() - interval '1 minute'
    LIMIT sqlc.arg(max_workers)::int
    FOR NO KEY UPDATE OF b SKIP LOCKED
), woken AS (
    UPDATE /*schema.*/job_bell AS b
    SET waits = false
    FROM waiting AS w
    WHERE b.worker_id = w.worker_id
    RETURNING b.worker_id
)
SELECT w.worker_id, set_config('synchronous_commit', 'off', true)::text AS durability,
       pg_notify('pglease_jobs_' || w.worker_id::text, '')::text AS rung
FROM woken AS w;
