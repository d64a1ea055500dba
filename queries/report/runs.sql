-- name: StartRun :one
-- StartRun makes the one logical run of a report for a period. Zero rows mean that there is one
-- already: Run reads it. It waits for a transaction that has made it and is under way.
INSERT INTO /*schema.*/report_runs AS r (report_id, period, worker)
VALUES (sqlc.arg(report_id)::text, sqlc.arg(period)::text, sqlc.arg(worker)::text)
ON CONFLICT (report_id, period) DO NOTHING
RETURNING r.run, r.status, r.worker, r.started_at, r.published_at, coalesce(r.version, 0)::bigint AS version, r.greatest_fence;

-- name: Run :one
-- Run reads the run of a report for a period. Zero rows mean that nobody has asked for one.
SELECT r.run, r.status, r.worker, r.started_at, r.published_at, coalesce(r.version, 0)::bigint AS version, r.greatest_fence
FROM /*schema.*/report_runs AS r
WHERE r.report_id = sqlc.arg(report_id)::text AND r.period = sqlc.arg(period)::text;

-- name: RestartRun :one
-- RestartRun begins a run again, if it is as the caller saw it. Zero rows mean that it is not, or
-- that there is none.
UPDATE /*schema.*/report_runs AS r
SET run = r.run + 1, status = 'started', worker = sqlc.arg(worker)::text, started_at = clock_timestamp(), published_at = NULL, version = NULL
WHERE r.report_id = sqlc.arg(report_id)::text AND r.period = sqlc.arg(period)::text
  AND r.run = sqlc.arg(run)::int AND r.status = sqlc.arg(status)::text
RETURNING r.run, r.status, r.worker, r.started_at, r.published_at, coalesce(r.version, 0)::bigint AS version, r.greatest_fence;

-- name: FinishRun :one
-- FinishRun ends a run with the version that was published, under a fence. Zero rows mean that it
-- is over, that it was begun again, that a newer fence has ended it, or that there is none.
UPDATE /*schema.*/report_runs AS r
SET status = 'published', published_at = clock_timestamp(), version = sqlc.arg(version)::bigint, greatest_fence = sqlc.arg(fence)::bigint
WHERE r.report_id = sqlc.arg(report_id)::text AND r.period = sqlc.arg(period)::text
  AND r.run = sqlc.arg(run)::int AND r.status = 'started' AND r.greatest_fence <= sqlc.arg(fence)::bigint
RETURNING r.run, r.status, r.worker, r.started_at, r.published_at, coalesce(r.version, 0)::bigint AS version, r.greatest_fence;
