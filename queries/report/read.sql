-- name: Read :one
-- Read returns the report as it is. Zero rows mean that nothing was ever published under the name.
SELECT r.version, r.body, r.content_hash, coalesce(r.written_fence, 0)::bigint AS fence, r.written_lease_id AS lease_id,
       coalesce(r.written_owner_id, '')::text AS owner_id, r.greatest_fence, r.published_at::timestamptz AS published_at
FROM /*schema.*/reports AS r
WHERE r.report_id = sqlc.arg(report_id)::text AND r.version > 0;

-- name: ReadVersion :one
-- ReadVersion returns one version of a report as it was accepted. Zero rows mean that there is no
-- such version yet, or that it was pruned.
SELECT v.version, v.body, v.content_hash, coalesce(v.fence, 0)::bigint AS fence, v.lease_id,
       coalesce(v.owner_id, '')::text AS owner_id, v.greatest_fence, v.published_at
FROM /*schema.*/report_version AS v
WHERE v.report_id = sqlc.arg(report_id)::text AND v.version = sqlc.arg(version)::bigint;

-- name: History :many
-- History returns the versions of a report without their bodies, the oldest first. Zero rows mean
-- that nothing was published, or that all was pruned.
SELECT v.version, octet_length(v.body)::bigint AS size, v.content_hash, coalesce(v.fence, 0)::bigint AS fence, v.lease_id,
       coalesce(v.owner_id, '')::text AS owner_id, v.greatest_fence, v.published_at
FROM /*schema.*/report_version AS v
WHERE v.report_id = sqlc.arg(report_id)::text
ORDER BY v.version;

-- name: Rejections :many
-- Rejections returns the last writes of a report that were refused, the newest first. Zero rows
-- mean that none was, or that all were pruned.
SELECT j.result, j.fence, j.lease_id, j.owner_id, j.greatest_fence, j.greatest_lease_id, j.greatest_owner_id, j.greatest_at,
       coalesce(j.expected_version, -1)::bigint AS expected_version, j.actual_version, j.rejected_at
FROM /*schema.*/report_rejection AS j
WHERE j.report_id = sqlc.arg(report_id)::text
ORDER BY j.rejection_id DESC
LIMIT sqlc.arg(max_rows)::int;

-- name: Watermark :one
-- Watermark returns the greatest fence that a report has accepted. Zero rows mean that it has seen
-- no token at all.
SELECT r.greatest_fence, r.greatest_lease_id, r.greatest_owner_id, r.greatest_at, r.version
FROM /*schema.*/reports AS r
WHERE r.report_id = sqlc.arg(report_id)::text;
