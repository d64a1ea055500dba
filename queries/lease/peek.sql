-- name: Peek :one
-- Peek tells whether a resource is held by another, at a fraction of what AcquireFree costs: it locks nothing,
-- and no part of it could write. It knows nothing of requests, so it is for one that cannot have been granted. Zero
-- rows mean that the resource is free or expired, or that this server is a standby, whose row may be an old
-- one: ask AcquireFree or Acquire.
SELECT l.owner_id,
       (date_part('epoch', l.expires_at + l.lock_delay - clock_timestamp()) * 1000000)::bigint AS microseconds,
       clock_timestamp()::timestamptz AS database_time
FROM /*schema.*/resource_lease AS l
WHERE l.resource_id = sqlc.arg(resource_id)::text
  AND l.ended_at IS NULL AND l.expires_at > clock_timestamp() AND NOT pg_is_in_recovery();
