-- name: BeginGrace :one
-- BeginGrace begins the grace of this server's generation, if it is asked for and has not begun, and
-- tells what is left of it: zero or less where it is over, or was never asked for. It always has one
-- row; zero rows mean that there is no installation.
WITH begun AS (
    UPDATE /*schema.*/installation AS i
    SET grace_generation = f.floor >> 41,
        grace_until      = clock_timestamp() + i.failover_grace
    FROM /*schema.*/server_floor AS f
    WHERE i.failover_grace IS NOT NULL AND i.grace_generation < f.floor >> 41
    RETURNING i.grace_until
)
SELECT (CASE WHEN i.failover_grace IS NULL THEN interval '0'
             ELSE coalesce((SELECT b.grace_until FROM begun AS b), i.grace_until) - clock_timestamp() END)::interval AS remaining
FROM /*schema.*/installation AS i;
