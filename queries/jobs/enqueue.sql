-- name: Enqueue :many
-- Enqueue adds jobs in the order of the arrays, and answers with those that it added, by
-- ascending id. A job whose unique key is taken is left out: Holders tells by whom. Zero rows mean
-- that each key was taken. RunAt before 1970 stands for now, to which the delay is added.
--
-- A job with a partition key begins as waiting; the table's trigger tells the partition of it.
-- Nothing but the job and that signal is written, so who enqueues waits for no worker.
WITH given AS MATERIALIZED (
    SELECT d.position, d.queue, d.priority, d.run_at, d.delay, d.max_attempts, d.partition_key, d.unique_key, d.unique_for, d.unique_waits, d.payload
    FROM ROWS FROM (unnest(sqlc.arg(queues)::text[]), unnest(sqlc.arg(priorities)::smallint[]), unnest(sqlc.arg(run_ats)::timestamptz[]),
                    unnest(sqlc.arg(delays)::bigint[]), unnest(sqlc.arg(max_attempts)::int[]), unnest(sqlc.arg(partition_keys)::text[]),
                    unnest(sqlc.arg(unique_keys)::text[]), unnest(sqlc.arg(unique_for)::bigint[]), unnest(sqlc.arg(unique_waits)::boolean[]),
                    unnest(sqlc.arg(payloads)::text[]))
         WITH ORDINALITY AS d(queue, priority, run_at, delay, max_attempts, partition_key, unique_key, unique_for, unique_waits, payload, position)
), added AS (
    INSERT INTO /*schema.*/job AS j (queue, state, priority, run_at, max_attempts, partition_key, unique_key, unique_until, unique_waits, payload)
    SELECT g.queue, CASE WHEN g.partition_key = '' THEN 'ready' ELSE 'waiting' END, g.priority,
           CASE WHEN g.run_at < timestamptz '1970-01-01 00:00:00+00' THEN clock_timestamp() ELSE g.run_at END + g.delay * interval '1 microsecond',
           g.max_attempts, nullif(g.partition_key, ''), nullif(g.unique_key, ''),
           CASE WHEN g.unique_for > 0 THEN clock_timestamp() + g.unique_for * interval '1 microsecond' END, g.unique_waits, g.payload::json
    FROM given AS g
    ORDER BY g.position
    ON CONFLICT (queue, unique_key) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING j.id, j.queue, j.unique_key, j.state
)
SELECT a.id, a.queue::text AS queue, coalesce(a.unique_key, '')::text AS unique_key, a.state::text AS state,
       (a.queue IN (SELECT b.queue FROM /*schema.*/job_bell AS b WHERE b.waits AND b.seen_at > clock_timestamp() - interval '1 minute'))::boolean AS awaited
FROM added AS a
ORDER BY a.id;

-- name: Holders :many
-- Holders tells which job has each unique key, and whether it only kept it for a time that is over.
-- Zero rows mean that the keys are free by now: Enqueue again. Each key is looked up by itself.
SELECT j.id, j.queue::text AS queue, j.unique_key::text AS unique_key, j.state::text AS state,
       (j.state IN ('done', 'dropped') AND (j.unique_until IS NULL OR j.unique_until <= clock_timestamp()))::boolean AS lapsed
FROM (SELECT sqlc.arg(queues)::text[] AS queues, sqlc.arg(unique_keys)::text[] AS unique_keys OFFSET 0) AS a
CROSS JOIN LATERAL ROWS FROM (unnest(a.queues), unnest(a.unique_keys)) AS d(queue, unique_key)
CROSS JOIN LATERAL (
    SELECT r.id, r.queue, r.unique_key, r.state, r.unique_until FROM /*schema.*/job AS r
    WHERE r.queue = d.queue AND r.unique_key = d.unique_key AND r.unique_key IS NOT NULL
      AND (r.attempt >= 0 OR /*schema.*/job_dear())
    LIMIT 1
) AS j;

-- name: FreeKeys :exec
-- FreeKeys takes the unique keys from finished jobs that kept them for a time that is over. Each is
-- looked up by itself, as in Extend.
WITH lapsed AS MATERIALIZED (
    SELECT h.id
    FROM (SELECT u.id FROM (SELECT sqlc.arg(ids)::bigint[] AS ids OFFSET 0) AS a, unnest(a.ids) AS u(id) ORDER BY u.id) AS d
    CROSS JOIN LATERAL (
        SELECT j.id FROM /*schema.*/job AS j
        WHERE j.id = d.id AND j.state IN ('done', 'dropped') AND (j.unique_until IS NULL OR j.unique_until <= clock_timestamp())
          AND (j.attempt >= 0 OR /*schema.*/job_dear())
        LIMIT 1
        FOR NO KEY UPDATE OF j
    ) AS h
)
UPDATE /*schema.*/job AS j
SET unique_key = NULL
WHERE j.id = ANY(ARRAY(SELECT l.id FROM lapsed AS l)) AND (j.attempt >= 0 OR /*schema.*/job_dear());

-- name: LockNames :exec
-- LockNames takes a lock on each name until the transaction ends, always in the same order. Who
-- draws an id under the lock of a key commits before the next one draws: ids are in commit order.
SELECT pg_advisory_xact_lock(n.hash)
FROM (SELECT DISTINCT hashtextextended(u.name, 7346214) AS hash FROM unnest(sqlc.arg(names)::text[]) AS u(name) ORDER BY 1) AS n;
