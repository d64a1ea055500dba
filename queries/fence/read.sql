-- name: Watermark :one
-- Watermark returns the greatest fence that a resource has accepted. Zero rows mean that it has seen
-- no token at all.
SELECT w.fence, w.lease_id, w.owner_id, w.established_at, w.version, w.last_sequence
FROM /*schema.*/fence_watermark AS w
WHERE w.resource_id = sqlc.arg(resource_id)::text;

-- name: Commands :many
-- Commands returns the last recorded commands of a resource, the newest first. Zero rows mean that
-- none had a key or a sequence, or that all were pruned.
SELECT c.version, c.fence, c.lease_id, c.owner_id, coalesce(c.command_key, '')::text AS command_key,
       coalesce(c.sequence, 0)::bigint AS sequence, c.result, c.accepted_at
FROM /*schema.*/fence_command AS c
WHERE c.resource_id = sqlc.arg(resource_id)::text
ORDER BY c.version DESC
LIMIT sqlc.arg(max_rows)::int;

-- name: Reject :execrows
-- Reject records a refusal. Zero rows mean that it is on record already.
INSERT INTO /*schema.*/fence_rejection (rejection_id, resource_id, table_name, fence, lease_id, owner_id,
                                        greatest_fence, greatest_lease_id, greatest_owner_id, greatest_at)
VALUES (sqlc.arg(rejection_id)::uuid, sqlc.arg(resource_id)::text, sqlc.arg(table_name)::text, sqlc.arg(fence)::bigint,
        sqlc.narg(lease_id)::uuid, sqlc.arg(owner_id)::text, sqlc.arg(greatest_fence)::bigint,
        sqlc.narg(greatest_lease_id)::uuid, sqlc.arg(greatest_owner_id)::text, sqlc.narg(greatest_at)::timestamptz)
ON CONFLICT (rejection_id) DO NOTHING;

-- name: Rejections :many
-- Rejections returns the last refusals of a resource, the newest first. Zero rows mean that there
-- was none, or that all were pruned.
SELECT j.table_name, j.fence, j.lease_id, j.owner_id, j.greatest_fence, j.greatest_lease_id, j.greatest_owner_id,
       j.greatest_at, j.rejected_at
FROM /*schema.*/fence_rejection AS j
WHERE j.resource_id = sqlc.arg(resource_id)::text
ORDER BY j.rejected_at DESC, j.rejection_id
LIMIT sqlc.arg(max_rows)::int;

-- name: CountRejections :one
-- CountRejections counts the refusals of all resources since a time. It always has one row.
SELECT count(*)::bigint AS refused
FROM /*schema.*/fence_rejection AS j
WHERE j.rejected_at >= sqlc.arg(since)::timestamptz;
