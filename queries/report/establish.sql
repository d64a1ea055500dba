-- name: Establish :one
-- Establish raises the watermark of a report to this token and touches nothing else; a report
-- that does not exist yet gets a row without a body, version 0. It answers with one row:
-- 'established', also when it was before; or 'stale_owner', which it also records. Zero rows mean
-- that a rival created the report during the statement: run it again.
WITH stored AS MATERIALIZED (
    SELECT r.report_id, r.version, r.greatest_fence, r.greatest_lease_id, r.greatest_owner_id, r.greatest_at
    FROM /*schema.*/reports AS r
    WHERE r.report_id = sqlc.arg(report_id)::text
    FOR NO KEY UPDATE OF r
), judged AS MATERIALIZED (
    SELECT s.report_id, s.version, s.greatest_fence, s.greatest_lease_id, s.greatest_owner_id, s.greatest_at,
           CASE WHEN s.greatest_fence > sqlc.arg(fence)::bigint THEN 'stale_owner'
                WHEN s.greatest_fence = sqlc.arg(fence)::bigint AND s.greatest_lease_id <> sqlc.arg(lease_id)::uuid THEN 'stale_owner'
                ELSE 'established' END AS result
    FROM stored AS s
), raised AS (
    UPDATE /*schema.*/reports AS r
    SET greatest_fence    = sqlc.arg(fence)::bigint,
        greatest_lease_id = sqlc.arg(lease_id)::uuid,
        greatest_owner_id = sqlc.arg(owner_id)::text,
        greatest_at       = clock_timestamp()
    FROM judged AS j
    WHERE r.report_id = j.report_id
      AND r.greatest_fence < sqlc.arg(fence)::bigint
), created AS (
    INSERT INTO /*schema.*/reports AS r (report_id, greatest_fence, greatest_lease_id, greatest_owner_id)
    SELECT sqlc.arg(report_id)::text, sqlc.arg(fence)::bigint, sqlc.arg(lease_id)::uuid, sqlc.arg(owner_id)::text
    WHERE NOT EXISTS (SELECT FROM stored)
    ON CONFLICT (report_id) DO NOTHING
    RETURNING r.version
), recorded AS (
    INSERT INTO /*schema.*/report_rejection (report_id, result, fence, lease_id, owner_id, greatest_fence, greatest_lease_id,
                                             greatest_owner_id, greatest_at, actual_version)
    SELECT j.report_id, j.result, sqlc.arg(fence)::bigint, sqlc.arg(lease_id)::uuid, sqlc.arg(owner_id)::text,
           j.greatest_fence, j.greatest_lease_id, j.greatest_owner_id, j.greatest_at, j.version
    FROM judged AS j
    WHERE j.result = 'stale_owner'
)
SELECT j.result::text AS result, j.version::bigint AS version, j.greatest_fence::bigint AS greatest_fence,
       j.greatest_lease_id::uuid AS greatest_lease_id, j.greatest_owner_id::text AS greatest_owner_id
FROM judged AS j
UNION ALL
SELECT 'established', c.version, sqlc.arg(fence)::bigint, sqlc.arg(lease_id)::uuid, sqlc.arg(owner_id)::text
FROM created AS c;
