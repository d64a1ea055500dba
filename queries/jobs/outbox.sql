-- name: WriteMessages :many
-- WriteMessages adds messages in the order of the arrays, and answers with their ids, ascending.
-- It always has one row for each.
INSERT INTO /*schema.*/outbox AS o (outbox, message_key, topic, body)
SELECT sqlc.arg(outbox)::text, d.message_key, d.topic, d.body
FROM ROWS FROM (unnest(sqlc.arg(message_keys)::text[]), unnest(sqlc.arg(topics)::text[]), unnest(sqlc.arg(bodies)::bytea[]))
     WITH ORDINALITY AS d(message_key, topic, body, position)
ORDER BY d.position
RETURNING o.id;

-- name: EstablishRelay :one
-- EstablishRelay raises the watermark of an outbox to a relay's token, and answers with the
-- watermark. Zero rows mean that it is a later one's, or another lease's with the same fence.
INSERT INTO /*schema.*/outbox_relay AS r (outbox, greatest_fence, greatest_lease_id)
VALUES (sqlc.arg(outbox)::text, sqlc.arg(fence)::bigint, sqlc.arg(lease_id)::uuid)
ON CONFLICT (outbox) DO UPDATE SET greatest_fence = EXCLUDED.greatest_fence, greatest_lease_id = EXCLUDED.greatest_lease_id
WHERE r.greatest_fence < EXCLUDED.greatest_fence
   OR (r.greatest_fence = EXCLUDED.greatest_fence AND r.greatest_lease_id = EXCLUDED.greatest_lease_id)
RETURNING r.greatest_fence;

-- name: Unsent :many
-- Unsent reads the messages that are to be relayed, by id, but for keys that are held back. Zero
-- rows mean that there are none. It never goes by the last id: what commits later is found later.
SELECT o.id, o.message_key, o.topic, o.body, o.written_at
FROM /*schema.*/outbox AS o
WHERE o.outbox = sqlc.arg(outbox)::text AND o.relayed_at IS NULL AND NOT (o.message_key = ANY(sqlc.arg(held_back)::text[]))
ORDER BY o.id
LIMIT sqlc.arg(max_rows)::int;

-- name: MarkRelayed :one
-- MarkRelayed stamps messages as relayed under a relay's token, if the watermark is still that
-- token's, and counts them. It holds the watermark until the transaction ends. Zero rows mean that
-- the watermark is a later relay's: nothing was stamped. The messages are looked up by their ids alone,
-- and the second CASE keeps it so: by the index of what is unsent, all of that would be read.
WITH mine AS MATERIALIZED (
    SELECT r.outbox
    FROM /*schema.*/outbox_relay AS r
    WHERE r.outbox = sqlc.arg(outbox)::text AND r.greatest_fence = sqlc.arg(fence)::bigint AND r.greatest_lease_id = sqlc.arg(lease_id)::uuid
    FOR SHARE OF r
), marked AS (
    UPDATE /*schema.*/outbox AS o
    SET relayed_at = clock_timestamp(), relayed_fence = sqlc.arg(fence)::bigint
    WHERE o.id = ANY(CASE WHEN EXISTS (SELECT FROM mine) THEN sqlc.arg(ids)::bigint[] END)
      AND CASE WHEN o.relayed_at IS NULL THEN o.outbox = sqlc.arg(outbox)::text END AND (o.id > 0 OR /*schema.*/job_dear())
    RETURNING o.id
)
SELECT (SELECT count(*) FROM marked)::bigint AS relayed FROM mine AS m;

-- name: PruneMessages :execrows
-- PruneMessages deletes messages that were relayed before a time. Zero rows mean that there are
-- none left.
WITH old AS MATERIALIZED (
    SELECT o.id FROM /*schema.*/outbox AS o
    WHERE o.outbox = sqlc.arg(outbox)::text AND o.relayed_at IS NOT NULL AND o.relayed_at < (SELECT clock_timestamp()) - sqlc.arg(age)::interval
    ORDER BY o.relayed_at
    LIMIT sqlc.arg(max_rows)::int
    FOR UPDATE OF o SKIP LOCKED
)
DELETE FROM /*schema.*/outbox AS o WHERE o.id = ANY(ARRAY(SELECT d.id FROM old AS d)) AND (o.id > 0 OR /*schema.*/job_dear());
