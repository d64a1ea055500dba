-- name: Claim :one
-- Claim is the first level of the rule: it locks the watermark of a resource and raises it to this
-- token, or finds the token stale, which it records under rejection_id. It answers with one row:
-- 'established', where the token is newer than the watermark or the first; 'current', where it is
-- the watermark's; 'stale'. The row says what the watermark was when the token is stale, and else
-- what it is. count_up, 0 or 1, is added to the version of a token that is not stale. Zero rows mean
-- that a rival created the watermark during the statement: run it again.
--
-- The row is locked first and judged as it is then. Without the lock, a statement would judge what
-- its snapshot shows, from before a rival that it just waited for.
WITH stored AS MATERIALIZED (
    SELECT w.resource_id, w.fence, w.lease_id, w.owner_id, w.established_at, w.version, w.last_sequence
    FROM /*schema.*/fence_watermark AS w
    WHERE w.resource_id = sqlc.arg(resource_id)::text
    FOR NO KEY UPDATE OF w
), judged AS MATERIALIZED (
    SELECT s.resource_id, s.fence, s.lease_id, s.owner_id, s.established_at, s.version, s.last_sequence,
           CASE WHEN s.fence > sqlc.arg(fence)::bigint THEN 'stale'
                WHEN s.fence < sqlc.arg(fence)::bigint THEN 'established'
                WHEN s.lease_id <> sqlc.arg(lease_id)::uuid THEN 'stale'
                ELSE 'current' END AS result
    FROM stored AS s
), raised AS (
    UPDATE /*schema.*/fence_watermark AS w
    SET fence          = sqlc.arg(fence)::bigint,
        lease_id       = sqlc.arg(lease_id)::uuid,
        owner_id       = CASE WHEN j.result = 'current' THEN w.owner_id ELSE sqlc.arg(owner_id)::text END,
        established_at = CASE WHEN j.result = 'current' THEN w.established_at ELSE clock_timestamp() END,
        last_sequence  = CASE WHEN j.result = 'current' THEN w.last_sequence ELSE 0 END,
        version        = w.version + sqlc.arg(count_up)::bigint
    FROM judged AS j
    WHERE w.resource_id = j.resource_id
      AND (w.fence < sqlc.arg(fence)::bigint
           OR (w.fence = sqlc.arg(fence)::bigint AND w.lease_id = sqlc.arg(lease_id)::uuid AND sqlc.arg(count_up)::bigint > 0))
), created AS (
    INSERT INTO /*schema.*/fence_watermark AS w (resource_id, fence, lease_id, owner_id, version)
    SELECT sqlc.arg(resource_id)::text, sqlc.arg(fence)::bigint, sqlc.arg(lease_id)::uuid, sqlc.arg(owner_id)::text, sqlc.arg(count_up)::bigint
    WHERE NOT EXISTS (SELECT FROM stored)
    ON CONFLICT (resource_id) DO NOTHING
    RETURNING w.established_at
), recorded AS (
    INSERT INTO /*schema.*/fence_rejection (rejection_id, resource_id, fence, lease_id, owner_id, greatest_fence, greatest_lease_id,
                                            greatest_owner_id, greatest_at)
    SELECT sqlc.arg(rejection_id)::uuid, j.resource_id, sqlc.arg(fence)::bigint, sqlc.arg(lease_id)::uuid, sqlc.arg(owner_id)::text,
           j.fence, j.lease_id, j.owner_id, j.established_at
    FROM judged AS j
    WHERE j.result = 'stale'
    ON CONFLICT (rejection_id) DO NOTHING
)
SELECT j.result::text AS result, j.fence::bigint AS fence, j.lease_id::uuid AS lease_id, j.owner_id::text AS owner_id,
       j.established_at::timestamptz AS established_at,
       (j.version + CASE WHEN j.result = 'stale' THEN 0 ELSE sqlc.arg(count_up)::bigint END)::bigint AS version,
       (CASE WHEN j.result = 'established' THEN 0 ELSE j.last_sequence END)::bigint AS last_sequence
FROM judged AS j
UNION ALL
SELECT 'established', sqlc.arg(fence)::bigint, sqlc.arg(lease_id)::uuid, sqlc.arg(owner_id)::text, c.established_at, sqlc.arg(count_up)::bigint, 0
FROM created AS c;

-- name: Accept :one
-- Accept counts a command in that Claim let pass, and records it with its result if it has a key or
-- a sequence. It returns the new version. Zero rows mean that the watermark is not as Claim left it:
-- another command of the same resource ran within this one.
WITH counted AS (
    UPDATE /*schema.*/fence_watermark AS w
    SET version       = w.version + 1,
        last_sequence = greatest(w.last_sequence, coalesce(sqlc.narg(sequence)::bigint, 0))
    WHERE w.resource_id = sqlc.arg(resource_id)::text
      AND w.fence = sqlc.arg(fence)::bigint
      AND w.lease_id = sqlc.arg(lease_id)::uuid
      AND w.version = sqlc.arg(version)::bigint
    RETURNING w.resource_id, w.version, w.fence, w.lease_id
), recorded AS (
    INSERT INTO /*schema.*/fence_command (resource_id, version, fence, lease_id, owner_id, command_key, sequence, result)
    SELECT c.resource_id, c.version, c.fence, c.lease_id, sqlc.arg(owner_id)::text, sqlc.narg(command_key)::text,
           sqlc.narg(sequence)::bigint, sqlc.narg(result)::bytea
    FROM counted AS c
    WHERE sqlc.narg(command_key)::text IS NOT NULL OR sqlc.narg(sequence)::bigint IS NOT NULL
)
SELECT c.version FROM counted AS c;

-- name: CommandByKey :one
-- CommandByKey returns what was recorded of a command with this key. Zero rows mean that there was
-- none, or that it was pruned. To see what a rival has just committed, it must be a statement of
-- its own after Claim.
SELECT c.version, c.fence, c.lease_id, c.owner_id, coalesce(c.command_key, '')::text AS command_key,
       coalesce(c.sequence, 0)::bigint AS sequence, c.result, c.accepted_at
FROM /*schema.*/fence_command AS c
WHERE c.resource_id = sqlc.arg(resource_id)::text AND c.command_key = sqlc.arg(command_key)::text;

-- name: CommandBySequence :one
-- CommandBySequence returns what was recorded of a command with this sequence under this fence.
-- Zero rows mean that there was none, or that it was pruned.
SELECT c.version, c.fence, c.lease_id, c.owner_id, coalesce(c.command_key, '')::text AS command_key,
       coalesce(c.sequence, 0)::bigint AS sequence, c.result, c.accepted_at
FROM /*schema.*/fence_command AS c
WHERE c.resource_id = sqlc.arg(resource_id)::text AND c.fence = sqlc.arg(fence)::bigint AND c.sequence = sqlc.arg(sequence)::bigint;
