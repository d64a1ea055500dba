-- name: Guard :one
-- Guard holds the lease's row for the rest of the transaction: until that ends, no other grant of
-- the resource can commit, while renewals pass. It returns what the lease has left, which may be
-- nothing: then the lease expired while the statement waited for the row. Zero rows mean that the
-- lease is over: another has the resource, it was ended, or it has expired.
--
-- Every statement that grants locks the row FOR UPDATE first, which conflicts with FOR KEY SHARE; a
-- renewal does not. The clock is read after the row is locked: a guard that waited for a takeover
-- which was rolled back must not take the time of before for the time of now.
--
-- It also bounds the transaction by what the lease has left, so that a process which stops in the
-- middle of it does not keep the resource from its next owner: Postgres ends a transaction that is
-- idle for longer, or whose client takes nothing of a result for longer, and no statement waits longer
-- for a lock. A stricter setting stays. (tcp_user_timeout shows as milliseconds without a unit, and as
-- 0 on a socket of another kind, where it does nothing.)
-- A subselect that locks, calls a volatile function or has an OFFSET is evaluated as it stands, before
-- what is around it, and costs less than a CTE. That a setting is '0' is asked as text: most are, and to
-- read one as an interval takes as long as to lock the row.
SELECT (date_part('epoch', b.remaining) * 1000000)::bigint AS microseconds,
       (set_config('lock_timeout', (CASE b.lock_now WHEN '0' THEN b.bound
            ELSE least(b.bound, ceil(date_part('epoch', b.lock_now::interval) * 1000)::bigint) END)::text, true) IS NOT NULL
        AND set_config('idle_in_transaction_session_timeout', (CASE b.idle_now WHEN '0' THEN b.bound
            ELSE least(b.bound, ceil(date_part('epoch', b.idle_now::interval) * 1000)::bigint) END)::text, true) IS NOT NULL
        AND set_config('tcp_user_timeout', (CASE b.unread_now WHEN '0' THEN b.bound
            ELSE least(b.bound, b.unread_now::bigint) END)::text, true) IS NOT NULL)::boolean AS bounded
FROM (
    SELECT t.remaining, greatest(ceil(date_part('epoch', t.remaining) * 1000)::bigint, 1) AS bound, -- in milliseconds
           current_setting('lock_timeout') AS lock_now, current_setting('idle_in_transaction_session_timeout') AS idle_now,
           current_setting('tcp_user_timeout') AS unread_now
    FROM (
        SELECT h.expires_at - clock_timestamp() AS remaining
        FROM (
            SELECT l.expires_at
            FROM /*schema.*/resource_lease AS l
            WHERE l.resource_id = sqlc.arg(resource_id)::text
              AND l.lease_id = sqlc.arg(lease_id)::uuid AND l.fence = sqlc.arg(fence)::bigint
              AND l.ended_at IS NULL
              AND l.expires_at > clock_timestamp()
            FOR KEY SHARE OF l
        ) AS h
    ) AS t
    OFFSET 0
) AS b;

-- name: GuardLast :one
-- GuardLast is Guard as the last thing before a COMMIT that is sent together with it: where the lease is
-- over it fails (invalid_text_representation), so that the COMMIT is passed over. It sets no bounds:
-- nothing follows that could wait for the client. It always has one row.
SELECT (CASE WHEN ( -- which locks the row before the clock is read
    SELECT l.expires_at
    FROM /*schema.*/resource_lease AS l
    WHERE l.resource_id = sqlc.arg(resource_id)::text
      AND l.lease_id = sqlc.arg(lease_id)::uuid AND l.fence = sqlc.arg(fence)::bigint
      AND l.ended_at IS NULL
    FOR KEY SHARE OF l
) > clock_timestamp() THEN 'true' ELSE 'the lease was over at ' || clock_timestamp()::text END)::boolean AS held;

-- name: BoundTx :one
-- BoundTx bounds the transaction as Guard does, by a time that the client knows, and reads no row:
-- under REPEATABLE READ a second look at the lease would not see that it had been renewed. It
-- always has one row.
SELECT (set_config('lock_timeout', (CASE b.lock_now WHEN '0' THEN b.bound
            ELSE least(b.bound, ceil(date_part('epoch', b.lock_now::interval) * 1000)::bigint) END)::text, true) IS NOT NULL
        AND set_config('idle_in_transaction_session_timeout', (CASE b.idle_now WHEN '0' THEN b.bound
            ELSE least(b.bound, ceil(date_part('epoch', b.idle_now::interval) * 1000)::bigint) END)::text, true) IS NOT NULL
        AND set_config('tcp_user_timeout', (CASE b.unread_now WHEN '0' THEN b.bound
            ELSE least(b.bound, b.unread_now::bigint) END)::text, true) IS NOT NULL)::boolean AS bounded
FROM (
    SELECT greatest(ceil(date_part('epoch', sqlc.arg(remaining)::interval) * 1000)::bigint, 1) AS bound,
           current_setting('lock_timeout') AS lock_now, current_setting('idle_in_transaction_session_timeout') AS idle_now,
           current_setting('tcp_user_timeout') AS unread_now
    OFFSET 0
) AS b;

-- name: GuardRefused :one
-- GuardRefused tells why Guard had no row: what the resource's row says now, and how the lease
-- ended where the history knows. Zero rows mean that the resource has no row.
SELECT l.fence, l.lease_id, l.owner_id, l.acquired_at,
       (l.lease_id = sqlc.arg(lease_id)::uuid AND l.fence = sqlc.arg(fence)::bigint)::boolean AS same,
       coalesce(h.ended, CASE WHEN l.lease_id <> sqlc.arg(lease_id)::uuid THEN ''
                              WHEN l.ended_at < l.expires_at THEN 'released'
                              ELSE 'expired' END)::text AS ended,
       coalesce(h.ended_by, '')::text AS ended_by, coalesce(h.reason, '')::text AS reason
FROM /*schema.*/resource_lease AS l
LEFT JOIN /*schema.*/lease_history AS h
    ON h.resource_id = l.resource_id AND h.fence = sqlc.arg(fence)::bigint AND h.lease_id = sqlc.arg(lease_id)::uuid
WHERE l.resource_id = sqlc.arg(resource_id)::text;
