-- name: CurrentLease :one
-- CurrentLease reads the row of a resource. Zero rows mean that it was never acquired.
SELECT l.owner_id, l.lease_id, l.fence, l.acquired_at, l.expires_at,
       (l.ended_at IS NULL AND l.expires_at > clock_timestamp())::boolean AS current,
       (l.expires_at - clock_timestamp())::interval AS remaining, clock_timestamp()::timestamptz AS database_time
FROM /*schema.*/resource_lease AS l
WHERE l.resource_id = sqlc.arg(resource_id)::text;

-- name: History :many
-- History reads the ended tenures of a resource, the newest first. Zero rows mean that none has
-- ended, or that history is off or pruned.
SELECT h.fence::bigint AS fence, h.owner_id, h.lease_id::uuid AS lease_id, h.acquired_at::timestamptz AS acquired_at, h.expires_at::timestamptz AS expires_at, h.ended_at, h.ended,
       coalesce(h.ended_by, '')::text AS ended_by, coalesce(h.reason, '')::text AS reason
FROM /*schema.*/lease_history AS h
WHERE h.resource_id = sqlc.arg(resource_id)::text AND h.fence < sqlc.arg(before_fence)::bigint
ORDER BY h.fence DESC
LIMIT sqlc.arg(max_rows)::int;
