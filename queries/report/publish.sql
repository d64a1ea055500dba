-- name: Replace :one
-- Replace is the fenced write: it gives the report a new body if the token is not older than the
-- watermark and the version is the expected one (-1 expects none). Content that this very token
-- wrote already is not written again. Zero rows mean that something spoke against it, or that there
-- is no such report: Settle tells.
--
-- The whole rule is in the WHERE clause, on the row's own columns. An UPDATE that waited for a
-- rival judges, and counts up from, the row as the rival left it.
UPDATE /*schema.*/reports AS r
SET body              = sqlc.arg(body)::bytea,
    version           = r.version + 1,
    greatest_fence    = sqlc.arg(fence)::bigint,
    greatest_lease_id = sqlc.arg(lease_id)::uuid,
    greatest_owner_id = sqlc.arg(owner_id)::text,
    written_fence     = sqlc.arg(fence)::bigint,
    written_lease_id  = sqlc.arg(lease_id)::uuid,
    written_owner_id  = sqlc.arg(owner_id)::text
WHERE r.report_id = sqlc.arg(report_id)::text
  AND (r.greatest_fence < sqlc.arg(fence)::bigint
       OR (r.greatest_fence = sqlc.arg(fence)::bigint AND r.greatest_lease_id = sqlc.arg(lease_id)::uuid))
  AND sqlc.arg(expected_version)::bigint IN (-1, r.version)
  AND (r.written_fence IS DISTINCT FROM sqlc.arg(fence)::bigint
       OR r.written_lease_id IS DISTINCT FROM sqlc.arg(lease_id)::uuid
       OR r.content_hash <> sqlc.arg(content_hash)::bytea)
RETURNING r.version, r.published_at::timestamptz AS published_at;

-- name: Settle :one
-- Settle is for a publication that Replace did not apply. It answers with one row: 'applied', when
-- there was no such report and it made the first version; 'repeated', when this very publication
-- is what the report holds; 'stale_owner' or 'conflict', which it also records; or 'again', when
-- nothing speaks against the publication any more. Zero rows mean that a rival created the report
-- meanwhile. In these last two cases run Replace again; after 'again', in the same transaction, it
-- must succeed.
--
-- The row is locked first and judged as it is then. Without the lock, a statement would judge what
-- its snapshot shows, from before a rival that it just waited for.
-- A newer token raises the watermark even where the version is not the expected one: the order
-- of owners does not depend on what they write.
WITH stored AS MATERIALIZED (
    SELECT r.report_id, r.version, r.content_hash, r.greatest_fence, r.greatest_lease_id, r.greatest_owner_id, r.greatest_at,
           r.written_fence, r.written_lease_id, r.published_at
    FROM /*schema.*/reports AS r
    WHERE r.report_id = sqlc.arg(report_id)::text
    FOR NO KEY UPDATE OF r
), judged AS MATERIALIZED (
    SELECT s.report_id, s.version, s.greatest_fence, s.greatest_lease_id, s.greatest_owner_id, s.greatest_at, s.published_at,
           CASE WHEN s.greatest_fence > sqlc.arg(fence)::bigint THEN 'stale_owner'
                WHEN s.greatest_fence = sqlc.arg(fence)::bigint AND s.greatest_lease_id <> sqlc.arg(lease_id)::uuid THEN 'stale_owner'
                WHEN s.written_fence = sqlc.arg(fence)::bigint AND s.written_lease_id = sqlc.arg(lease_id)::uuid
                     AND s.content_hash = sqlc.arg(content_hash)::bytea
                     AND sqlc.arg(expected_version)::bigint IN (-1, s.version - 1, s.version) THEN 'repeated'
                WHEN sqlc.arg(expected_version)::bigint NOT IN (-1, s.version) THEN 'conflict'
                ELSE 'again' END AS result
    FROM stored AS s
), raised AS (
    UPDATE /*schema.*/reports AS r
    SET greatest_fence    = sqlc.arg(fence)::bigint,
        greatest_lease_id = sqlc.arg(lease_id)::uuid,
        greatest_owner_id = sqlc.arg(owner_id)::text,
        greatest_at       = clock_timestamp()
    FROM judged AS j
    WHERE r.report_id = j.report_id
      AND j.result = 'conflict'
      AND r.greatest_fence < sqlc.arg(fence)::bigint
), created AS (
    INSERT INTO /*schema.*/reports AS r (report_id, version, body, greatest_fence, greatest_lease_id, greatest_owner_id,
                                         written_fence, written_lease_id, written_owner_id)
    SELECT sqlc.arg(report_id)::text, n.version, CASE WHEN n.version = 1 THEN sqlc.arg(body)::bytea ELSE '' END,
           sqlc.arg(fence)::bigint, sqlc.arg(lease_id)::uuid, sqlc.arg(owner_id)::text,
           CASE WHEN n.version = 1 THEN sqlc.arg(fence)::bigint END,
           CASE WHEN n.version = 1 THEN sqlc.arg(lease_id)::uuid END,
           CASE WHEN n.version = 1 THEN sqlc.arg(owner_id)::text END
    FROM (SELECT CASE WHEN sqlc.arg(expected_version)::bigint IN (-1, 0) THEN 1 ELSE 0 END AS version) AS n
    WHERE NOT EXISTS (SELECT FROM stored)
    ON CONFLICT (report_id) DO NOTHING
    RETURNING r.version, r.published_at, r.greatest_at
), answer AS (
    SELECT j.result, j.version, j.published_at, j.greatest_fence, j.greatest_lease_id, j.greatest_owner_id, j.greatest_at
    FROM judged AS j
    UNION ALL
    SELECT CASE WHEN c.version = 1 THEN 'applied' ELSE 'conflict' END, c.version, c.published_at,
           sqlc.arg(fence)::bigint, sqlc.arg(lease_id)::uuid, sqlc.arg(owner_id)::text, c.greatest_at
    FROM created AS c
), recorded AS (
    INSERT INTO /*schema.*/report_rejection (report_id, result, fence, lease_id, owner_id, greatest_fence, greatest_lease_id,
                                             greatest_owner_id, greatest_at, expected_version, actual_version)
    SELECT sqlc.arg(report_id)::text, a.result, sqlc.arg(fence)::bigint, sqlc.arg(lease_id)::uuid, sqlc.arg(owner_id)::text,
           a.greatest_fence, a.greatest_lease_id, a.greatest_owner_id, a.greatest_at,
           nullif(sqlc.arg(expected_version)::bigint, -1), a.version
    FROM answer AS a
    WHERE a.result IN ('stale_owner', 'conflict')
)
SELECT a.result::text AS result, a.version::bigint AS version,
       coalesce(a.published_at, clock_timestamp())::timestamptz AS published_at,
       a.greatest_fence::bigint AS greatest_fence, a.greatest_lease_id::uuid AS greatest_lease_id,
       a.greatest_owner_id::text AS greatest_owner_id
FROM answer AS a;
