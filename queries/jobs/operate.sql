-- name: Job :one
-- Job reads one job. Zero rows mean that there is none, or that it was pruned.
SELECT j.id, j.queue::text AS queue, j.state::text AS state, j.priority::smallint AS priority, j.run_at, j.attempt, j.max_attempts, j.fence, coalesce(j.worker_id, '')::text AS worker_id,
       coalesce(j.partition_key, '')::text AS partition_key, coalesce(j.unique_key, '')::text AS unique_key,
       j.created_at, j.finished_at, coalesce(j.last_error, '')::text AS last_error, j.payload
FROM /*schema.*/job AS j
WHERE j.id = sqlc.arg(id)::bigint;

-- name: Parked :many
-- Parked lists the jobs of a queue that gave up, by id. Zero rows mean that there are no more. The
-- time of finishing, which they do not have, is named for the index's order.
SELECT j.id, j.queue::text AS queue, j.state::text AS state, j.priority::smallint AS priority, j.run_at, j.attempt, j.max_attempts, j.fence, coalesce(j.worker_id, '')::text AS worker_id,
       coalesce(j.partition_key, '')::text AS partition_key, coalesce(j.unique_key, '')::text AS unique_key,
       j.created_at, j.finished_at, coalesce(j.last_error, '')::text AS last_error, j.payload
FROM /*schema.*/job AS j
WHERE j.state = 'parked' AND j.finished_at IS NULL AND j.queue = sqlc.arg(queue)::text AND j.id > sqlc.arg(after)::bigint
ORDER BY j.finished_at, j.id
LIMIT sqlc.arg(max_rows)::int;

-- name: Retry :many
-- Retry makes parked jobs ready at once, with all their attempts before them. A job without a row
-- in the answer was not parked. Each is looked up by itself, as in Extend.
WITH mine AS MATERIALIZED (
    SELECT h.id
    FROM (SELECT u.id FROM (SELECT sqlc.arg(ids)::bigint[] AS ids OFFSET 0) AS a, unnest(a.ids) AS u(id) ORDER BY u.id) AS d
    CROSS JOIN LATERAL (
        SELECT j.id FROM /*schema.*/job AS j
        WHERE j.id = d.id AND j.state = 'parked' AND (j.attempt >= 0 OR /*schema.*/job_dear())
        LIMIT 1
        FOR NO KEY UPDATE OF j
    ) AS h
)
UPDATE /*schema.*/job AS j
SET state = 'ready', attempt = 0, run_at = clock_timestamp()
WHERE j.id = ANY(ARRAY(SELECT m.id FROM mine AS m)) AND (j.attempt >= 0 OR /*schema.*/job_dear())
RETURNING j.id;

-- name: Drop :many
-- Drop ends jobs that nobody runs. A job without a row in the answer is running, over or gone. Each is
-- looked up by itself, as in Extend.
WITH mine AS MATERIALIZED (
    SELECT h.id
    FROM (SELECT u.id FROM (SELECT sqlc.arg(ids)::bigint[] AS ids OFFSET 0) AS a, unnest(a.ids) AS u(id) ORDER BY u.id) AS d
    CROSS JOIN LATERAL (
        SELECT j.id FROM /*schema.*/job AS j
        WHERE j.id = d.id AND j.state IN ('ready', 'waiting', 'parked') AND (j.attempt >= 0 OR /*schema.*/job_dear())
        LIMIT 1
        FOR NO KEY UPDATE OF j
    ) AS h
)
UPDATE /*schema.*/job AS j
SET state = 'dropped', finished_at = clock_timestamp(), unique_key = CASE WHEN j.unique_until > clock_timestamp() THEN j.unique_key END
WHERE j.id = ANY(ARRAY(SELECT m.id FROM mine AS m)) AND (j.attempt >= 0 OR /*schema.*/job_dear())
RETURNING j.id;

-- name: Count :one
-- Count counts the jobs of a queue that are not over. It always has one row.
SELECT (SELECT count(*) FROM /*schema.*/job AS j WHERE j.queue = sqlc.arg(queue)::text AND j.state = 'ready')::bigint AS ready,
       (SELECT count(*) FROM /*schema.*/job AS j WHERE j.queue = sqlc.arg(queue)::text AND j.state = 'waiting')::bigint AS waiting,
       (SELECT count(*) FROM /*schema.*/job AS j WHERE j.queue = sqlc.arg(queue)::text AND j.state = 'running')::bigint AS running,
       (SELECT count(*) FROM /*schema.*/job AS j WHERE j.queue = sqlc.arg(queue)::text AND j.state = 'parked' AND j.finished_at IS NULL)::bigint AS parked;

-- name: Prune :execrows
-- Prune deletes jobs that were over before a time and keep no unique key. Zero rows mean that
-- there are none left. The clock is read in a subquery of its own: a volatile function is no bound
-- of an index scan, and all that is finished would be walked over. Each state is a range of its own
-- in the index, in the order of time; the list of states is that index's.
WITH old AS MATERIALIZED (
    SELECT h.id
    FROM (VALUES ('done'::text), ('dropped'::text)) AS s(state)
    CROSS JOIN LATERAL (
        SELECT j.id FROM /*schema.*/job AS j
        WHERE j.state = s.state AND j.state IN ('parked', 'done', 'dropped')
          AND j.finished_at < (SELECT clock_timestamp()) - sqlc.arg(age)::interval
          AND (j.unique_key IS NULL OR j.unique_until IS NULL OR j.unique_until <= clock_timestamp())
        ORDER BY j.finished_at, j.queue, j.id
        LIMIT sqlc.arg(max_rows)::int
        FOR UPDATE OF j SKIP LOCKED
    ) AS h
    LIMIT sqlc.arg(max_rows)::int
)
DELETE FROM /*schema.*/job AS j WHERE j.id = ANY(ARRAY(SELECT o.id FROM old AS o)) AND (j.attempt >= 0 OR /*schema.*/job_dear());

-- name: PrunePartitions :execrows
-- PrunePartitions deletes partitions without jobs that are not over, once the floor has passed
-- their generation by a day: a new row begins above it, also where the server's clock was set back
-- by less than that. Zero rows mean that there are none left.
WITH idle AS MATERIALIZED (
    SELECT p.queue, p.partition_key FROM /*schema.*/job_partition AS p
    WHERE p.generation < (SELECT f.floor - 24 * 3600 * 1000 FROM /*schema.*/job_fence_floor AS f)
      AND NOT EXISTS (SELECT FROM /*schema.*/job AS j WHERE j.queue = p.queue AND j.partition_key = p.partition_key AND j.state IN ('ready', 'running', 'parked'))
      AND NOT EXISTS (SELECT FROM /*schema.*/job AS j WHERE j.queue = p.queue AND j.partition_key = p.partition_key AND j.state = 'waiting')
    LIMIT sqlc.arg(max_rows)::int
    FOR UPDATE OF p SKIP LOCKED
)
DELETE FROM /*schema.*/job_partition AS p USING idle AS i WHERE p.queue = i.queue AND p.partition_key = i.partition_key;
