-- name: LookupRequest :one
-- LookupRequest tells what became of an acquire whose reply was lost, without asking again. Zero rows
-- mean that the request has not been granted, or that its lease is over and not on record.
SELECT l.lease_id::uuid AS lease_id, l.fence::bigint AS fence,
       (l.ended_at IS NULL AND l.expires_at > clock_timestamp())::boolean AS current,
       (l.expires_at - clock_timestamp())::interval AS remaining
FROM /*schema.*/resource_lease AS l
WHERE l.resource_id = sqlc.arg(resource_id)::text AND l.request_id = sqlc.arg(request_id)::uuid
UNION ALL
SELECT h.lease_id::uuid, h.fence::bigint, false, interval '0'
FROM /*schema.*/lease_history AS h
WHERE h.request_id = sqlc.arg(request_id)::uuid AND h.resource_id = sqlc.arg(resource_id)::text AND h.fence IS NOT NULL
LIMIT 1;
