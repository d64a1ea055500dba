-- The authority: who owns a resource now, and every tenure that has ended.

-- installation has one row. It fixes what the fence floor is counted from.
CREATE TABLE /*schema.*/installation (
    id                boolean     PRIMARY KEY DEFAULT true CHECK (id),
    epoch             timestamptz NOT NULL DEFAULT clock_timestamp(),
    generation_base   bigint      NOT NULL,
    system_identifier bigint      NOT NULL,
    history           boolean     NOT NULL DEFAULT true,
    failover_grace    interval CHECK (failover_grace > interval '0'),
    grace_generation  bigint      NOT NULL DEFAULT 0,
    grace_until       timestamptz NOT NULL DEFAULT 'epoch'
);
COMMENT ON COLUMN /*schema.*/installation.epoch IS 'fences count milliseconds from here; never changes';
COMMENT ON COLUMN /*schema.*/installation.generation_base IS 'generation = generation_base + the server''s timeline; raised by adopt, never lowered';
COMMENT ON COLUMN /*schema.*/installation.system_identifier IS 'the server that generation_base was computed on';
COMMENT ON COLUMN /*schema.*/installation.history IS 'whether ended tenures are kept in lease_history';
COMMENT ON COLUMN /*schema.*/installation.failover_grace IS 'for how long nothing is granted in a new generation; NULL for not at all. Not shorter than the longest TTL, so that every lease is over which the new server does not know of';
COMMENT ON COLUMN /*schema.*/installation.grace_generation IS 'the last generation whose grace has begun';

-- server_timeline is the timeline the server writes now. pg_walfile_name is right during a
-- promotion, when pg_control_checkpoint still names the old timeline for minutes.
CREATE VIEW /*schema.*/server_timeline AS
SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int::bigint AS timeline;

-- Some managed servers lack pg_walfile_name. There the generation is the base alone.
DO $$
BEGIN
    PERFORM pg_walfile_name(pg_current_wal_lsn());
EXCEPTION WHEN OTHERS THEN
    CREATE OR REPLACE VIEW /*schema.*/server_timeline AS SELECT 0::bigint AS timeline;
END
$$;

INSERT INTO /*schema.*/installation (generation_base, system_identifier)
SELECT -t.timeline, (pg_control_system()).system_identifier FROM /*schema.*/server_timeline t;

-- server_floor is the least fence that is new to this server now: generation << 41 | milliseconds.
-- It keeps fences rising where old + 1 cannot: the last grants were lost in a failover, a backup
-- was restored, or the row was pruned. in_grace tells that nothing is to be granted yet; history, whether
-- ended tenures are kept, for who asks for all of it at once.
CREATE VIEW /*schema.*/server_floor AS
SELECT (greatest(i.generation_base + t.timeline, 0) << 41)
       | least(greatest((date_part('epoch', clock_timestamp()) * 1000)::bigint - (date_part('epoch', i.epoch) * 1000)::bigint, 1), (1::bigint << 41) - 1) AS floor,
       i.failover_grace IS NOT NULL AND (i.grace_generation < i.generation_base + t.timeline OR i.grace_until > clock_timestamp()) AS in_grace,
       i.history
FROM /*schema.*/installation i, /*schema.*/server_timeline t
WHERE i.id;

CREATE FUNCTION /*schema.*/refuse_in_grace() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'nothing is granted yet: leases that a failover lost may still be held'
        USING ERRCODE = 'PGF04', HINT = 'See failover_grace of the installation.';
END
$$;

-- fence_floor is the least fence that a grant may carry now. Every statement that grants reads it, and
-- none that does not, so that during a failover's grace it refuses them all; but for lease_pass, which
-- then releases and serves nobody.
CREATE VIEW /*schema.*/fence_floor AS
SELECT CASE WHEN f.in_grace THEN /*schema.*/refuse_in_grace() ELSE f.floor END AS floor
FROM /*schema.*/server_floor f;

CREATE TABLE /*schema.*/resource_lease (
    resource_id text COLLATE "C" PRIMARY KEY,
    owner_id    text        NOT NULL,
    lease_id    uuid        NOT NULL,
    request_id  uuid        NOT NULL,
    fence       bigint      NOT NULL,
    acquired_at timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    ttl         interval    NOT NULL,
    ended_at    timestamptz,
    refused_request_id uuid
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE /*schema.*/resource_lease IS 'One row a resource: its current tenure, or its last one. No index on a column that a grant or a renewal changes, so that both are HOT. What its columns may hold is checked by its triggers: Postgres parses a CHECK, and the WHEN of a trigger, anew with each statement.';
COMMENT ON COLUMN /*schema.*/resource_lease.owner_id IS 'for people to read; never used to decide';
COMMENT ON COLUMN /*schema.*/resource_lease.lease_id IS 'the identity of this one grant. Who changes it must hold the row FOR UPDATE, so that a guard''s FOR KEY SHARE makes a takeover wait and lets a renewal pass';
COMMENT ON COLUMN /*schema.*/resource_lease.request_id IS 'the caller''s name for the acquire call that was granted';
COMMENT ON COLUMN /*schema.*/resource_lease.ended_at IS 'set when the tenure was ended by release or break; the resource is free when this is set or expires_at has passed';
COMMENT ON COLUMN /*schema.*/resource_lease.refused_request_id IS 'the request that was abandoned last. In the row, because a grant that was under way then looks at the newest row again, and at lease_history not';

CREATE TABLE /*schema.*/lease_history (
    resource_id text COLLATE "C" NOT NULL,
    fence       bigint,
    owner_id    text        NOT NULL,
    lease_id    uuid,
    request_id  uuid        NOT NULL,
    acquired_at timestamptz,
    expires_at  timestamptz,
    ended_at    timestamptz NOT NULL,
    ended       text        NOT NULL,
    ended_by    text,
    reason      text,
    UNIQUE (resource_id, fence)
);
CREATE INDEX lease_history_request_id_idx ON /*schema.*/lease_history (request_id);
COMMENT ON TABLE /*schema.*/lease_history IS 'One row a tenure, written when it ends. An abandoned request never had one: its row has no fence, and only says that the request is spent.';
COMMENT ON COLUMN /*schema.*/lease_history.ended IS 'released, expired, broken or abandoned';

-- What follows holds invariants against everybody, psql included.

-- The columns that the trigger is for are those that no renewal and no plain release sets. A grant as it should be
-- passes at the first look: each expression costs.
CREATE FUNCTION /*schema.*/check_lease() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.fence > OLD.fence AND NEW.resource_id = OLD.resource_id AND NEW.ttl > interval '0' THEN
        RETURN NEW;
    ELSIF NEW.fence < OLD.fence OR (NEW.lease_id <> OLD.lease_id AND NEW.fence = OLD.fence) OR NEW.resource_id <> OLD.resource_id THEN
        RAISE EXCEPTION 'fence of % may not go from % to %', OLD.resource_id, OLD.fence, NEW.fence
            USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
    ELSIF NEW.ttl <= interval '0' THEN
        RAISE EXCEPTION 'the ttl of % may not be %', NEW.resource_id, NEW.ttl
            USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER fence_never_falls BEFORE UPDATE OF fence, lease_id, resource_id, ttl ON /*schema.*/resource_lease FOR EACH ROW
EXECUTE FUNCTION /*schema.*/check_lease();

-- A new row starts at the floor, whatever the INSERT says: an earlier row may have been pruned.
CREATE FUNCTION /*schema.*/raise_to_floor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.ttl <= interval '0' OR octet_length(NEW.resource_id) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION 'a resource needs a name of 1 to 512 bytes and a ttl above zero'
            USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
    END IF;
    SELECT greatest(NEW.fence, f.floor) INTO STRICT NEW.fence FROM /*schema.*/server_floor f;
    RETURN NEW;
END
$$;
CREATE TRIGGER fence_starts_at_floor BEFORE INSERT ON /*schema.*/resource_lease FOR EACH ROW
EXECUTE FUNCTION /*schema.*/raise_to_floor();

-- A row may go only when its tenure is over and the floor has passed its fence, so that the next
-- row of this resource starts above it.
CREATE FUNCTION /*schema.*/refuse_early_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.ended_at IS NULL AND OLD.expires_at > clock_timestamp())
       OR OLD.fence >= (SELECT f.floor FROM /*schema.*/server_floor f) THEN
        RAISE EXCEPTION 'resource % may not be deleted: it is held, or its fence % is above the floor', OLD.resource_id, OLD.fence
            USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
    END IF;
    RETURN OLD;
END
$$;
CREATE TRIGGER fence_outlives_row BEFORE DELETE ON /*schema.*/resource_lease FOR EACH ROW
EXECUTE FUNCTION /*schema.*/refuse_early_delete();

-- Shared by everything that nobody may change: ERRCODE PGF03.
CREATE FUNCTION /*schema.*/refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('pglease.prune', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% is refused on %', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'PGF03', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END
$$;
CREATE TRIGGER lease_never_truncated BEFORE TRUNCATE ON /*schema.*/resource_lease FOR EACH STATEMENT
EXECUTE FUNCTION /*schema.*/refuse_change();
CREATE TRIGGER history_never_changes BEFORE UPDATE OR DELETE ON /*schema.*/lease_history FOR EACH ROW
EXECUTE FUNCTION /*schema.*/refuse_change();
CREATE TRIGGER history_never_truncated BEFORE TRUNCATE ON /*schema.*/lease_history FOR EACH STATEMENT
EXECUTE FUNCTION /*schema.*/refuse_change();

CREATE FUNCTION /*schema.*/refuse_lower_generation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'installation: the epoch is fixed, the generation never falls, and the row stays'
        USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END
$$;
CREATE TRIGGER generation_never_falls BEFORE UPDATE ON /*schema.*/installation FOR EACH ROW
WHEN (NEW.epoch <> OLD.epoch OR NEW.generation_base < OLD.generation_base OR NEW.grace_generation < OLD.grace_generation)
EXECUTE FUNCTION /*schema.*/refuse_lower_generation();
CREATE TRIGGER installation_stays BEFORE DELETE ON /*schema.*/installation FOR EACH ROW
EXECUTE FUNCTION /*schema.*/refuse_lower_generation();
