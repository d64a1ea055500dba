-- name: Signalled :one
-- Signalled tells whether any partition is to be looked at. It always has one row.
SELECT EXISTS (SELECT FROM /*schema.*/job_signal)::boolean AS signalled;

-- name: LockPartitions :many
-- LockPartitions finds partitions to be looked at and locks them until the transaction ends; what
-- another has locked is left to that one. Zero rows mean that there is nothing to do.
WITH heard AS MATERIALIZED (
    SELECT DISTINCT s.queue, s.partition_key
    FROM /*schema.*/job_signal AS s
    ORDER BY s.queue, s.partition_key
    LIMIT sqlc.arg(max_keys)::int
)
SELECT h.queue, h.partition_key
FROM heard AS h
WHERE pg_try_advisory_xact_lock(hashtextextended(sqlc.arg(prefix)::text || h.queue || chr(1) || h.partition_key, 7346215));

-- name: Promote :many
-- Promote makes the first waiting job of each partition ready where none is ready, running or
-- parked, and answers with those. Zero rows mean that each partition is busy, parked or empty.
--
-- It is a statement of its own, after LockPartitions: what it decides, and the signals that it
-- deletes, are of one snapshot, and that is later than whatever another decided under the lock. A
-- job that commits after it leaves a signal of its own. Partitions are looked at one by one: the OFFSET in
-- NOT EXISTS keeps that from becoming a join, and job_dear is as in Claim.
WITH keys AS MATERIALIZED (
    SELECT k.queue, k.partition_key
    FROM (SELECT sqlc.arg(queues)::text[] AS queues, sqlc.arg(partition_keys)::text[] AS partition_keys OFFSET 0) AS a,
        ROWS FROM (unnest(a.queues), unnest(a.partition_keys)) AS k(queue, partition_key)
), heard AS (
    DELETE FROM /*schema.*/job_signal AS s
    USING keys AS k
    WHERE s.queue = k.queue AND s.partition_key = k.partition_key
), heads AS MATERIALIZED (
    SELECT h.id
    FROM keys AS k
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM /*schema.*/job AS j
        WHERE j.queue = k.queue AND j.partition_key = k.partition_key AND j.state = 'waiting'
          AND (j.attempt >= 0 OR /*schema.*/job_dear())
        ORDER BY j.id
        LIMIT 1
    ) AS h
    WHERE NOT EXISTS (SELECT FROM /*schema.*/job AS a
                      WHERE a.queue = k.queue AND a.partition_key = k.partition_key AND a.state IN ('ready', 'running', 'parked')
                        AND (a.attempt >= 0 OR /*schema.*/job_dear()) OFFSET 0)
)
UPDATE /*schema.*/job AS j
SET state = 'ready'
WHERE j.id = ANY(ARRAY(SELECT h.id FROM heads AS h)) AND (j.attempt >= 0 OR /*schema.*/job_dear())
RETURNING j.id, j.queue::text AS queue;
