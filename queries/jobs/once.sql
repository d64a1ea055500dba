-- name: BeginOnce :one
-- BeginOnce reserves a key. It waits for a transaction that has reserved it and is under way. Zero
-- rows mean that it is taken: OnceResult has the result.
INSERT INTO /*schema.*/job_once AS o (key) VALUES (sqlc.arg(key)::text)
ON CONFLICT (key) DO NOTHING
RETURNING o.created_at;

-- name: EndOnce :one
-- EndOnce keeps the result of a key that this transaction reserved. Zero rows mean that it has one.
UPDATE /*schema.*/job_once AS o SET result = sqlc.arg(result)::text::json
WHERE o.key = sqlc.arg(key)::text AND o.result IS NULL
RETURNING o.created_at;

-- name: OnceResult :one
-- OnceResult reads the result under a key. Zero rows mean that there is none, or that it was
-- pruned a moment ago.
SELECT coalesce(o.result::text, '')::text AS result FROM /*schema.*/job_once AS o WHERE o.key = sqlc.arg(key)::text;

-- name: PruneOnce :execrows
-- PruneOnce deletes results that are older than an age: after that, the key is as new. Zero rows
-- mean that there are none left.
WITH old AS MATERIALIZED (
    SELECT o.key FROM /*schema.*/job_once AS o
    WHERE o.created_at < (SELECT clock_timestamp()) - sqlc.arg(age)::interval
    ORDER BY o.created_at
    LIMIT sqlc.arg(max_rows)::int
    FOR UPDATE OF o SKIP LOCKED
)
DELETE FROM /*schema.*/job_once AS o WHERE o.key = ANY(ARRAY(SELECT d.key FROM old AS d));

-- name: ForgetOnce :exec
-- ForgetOnce gives back a key that this transaction reserved and has no result for.
DELETE FROM /*schema.*/job_once AS o WHERE o.key = sqlc.arg(key)::text AND o.result IS NULL;
