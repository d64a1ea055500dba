-- What protected resources need to refuse a stale owner: a watermark each, the commands that were
-- accepted, the writes that were refused, and a trigger for any other table. Needs nothing of the
-- lease line: the resource may be in another database than the leases.

CREATE TABLE /*schema.*/fence_watermark (
    resource_id    text COLLATE "C" PRIMARY KEY CHECK (octet_length(resource_id) BETWEEN 1 AND 512),
    fence          bigint      NOT NULL CHECK (fence > 0),
    lease_id       uuid        NOT NULL,
    owner_id       text        NOT NULL DEFAULT '',
    established_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    version        bigint      NOT NULL DEFAULT 0 CHECK (version >= 0),
    last_sequence  bigint      NOT NULL DEFAULT 0 CHECK (last_sequence >= 0)
) WITH (fillfactor = 70);
COMMENT ON TABLE /*schema.*/fence_watermark IS 'One row a protected resource, for ever: a row that went would let old owners in again.';
COMMENT ON COLUMN /*schema.*/fence_watermark.fence IS 'the greatest fence accepted: whatever carries a lower one is refused';
COMMENT ON COLUMN /*schema.*/fence_watermark.lease_id IS 'the lease that the fence belongs to: tells two leases apart that came to share a fence';
COMMENT ON COLUMN /*schema.*/fence_watermark.owner_id IS 'for people to read; never used to decide';
COMMENT ON COLUMN /*schema.*/fence_watermark.established_at IS 'when the watermark was raised to fence';
COMMENT ON COLUMN /*schema.*/fence_watermark.version IS 'how many commands were accepted';
COMMENT ON COLUMN /*schema.*/fence_watermark.last_sequence IS 'the greatest sequence accepted under this fence; 0 with each new one';

CREATE TABLE /*schema.*/fence_command (
    resource_id text COLLATE "C" NOT NULL,
    version     bigint      NOT NULL,
    fence       bigint      NOT NULL,
    lease_id    uuid        NOT NULL,
    owner_id    text        NOT NULL,
    command_key text COLLATE "C",
    sequence    bigint,
    result      bytea,
    accepted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (resource_id, version)
);
CREATE UNIQUE INDEX fence_command_key_idx ON /*schema.*/fence_command (resource_id, command_key) WHERE command_key IS NOT NULL;
CREATE UNIQUE INDEX fence_command_sequence_idx ON /*schema.*/fence_command (resource_id, fence, sequence) WHERE sequence IS NOT NULL;
COMMENT ON TABLE /*schema.*/fence_command IS 'One row a command with a key or a sequence that was accepted, so that a repeated one gets the same result.';

CREATE TABLE /*schema.*/fence_rejection (
    rejection_id      uuid        PRIMARY KEY,
    resource_id       text COLLATE "C" NOT NULL,
    table_name        text        NOT NULL DEFAULT '',
    fence             bigint      NOT NULL,
    lease_id          uuid,
    owner_id          text        NOT NULL DEFAULT '',
    greatest_fence    bigint      NOT NULL,
    greatest_lease_id uuid,
    greatest_owner_id text        NOT NULL DEFAULT '',
    greatest_at       timestamptz,
    rejected_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX fence_rejection_resource_idx ON /*schema.*/fence_rejection (resource_id, rejected_at);
CREATE INDEX fence_rejection_time_idx ON /*schema.*/fence_rejection (rejected_at);
COMMENT ON TABLE /*schema.*/fence_rejection IS 'One row a write that was refused because its owner was stale: who sent it, and what stood against it.';
COMMENT ON COLUMN /*schema.*/fence_rejection.rejection_id IS 'drawn by the client, so that a refusal is kept once, whether or not the transaction that met it was rolled back';
COMMENT ON COLUMN /*schema.*/fence_rejection.table_name IS 'the table whose trigger refused; empty for a watermark. resource_id is then the key of the row';
COMMENT ON COLUMN /*schema.*/fence_rejection.greatest_at IS 'when the watermark was raised: rejected_at less this is for how long the lease was stale';

-- What follows holds invariants against everybody, psql included.

CREATE FUNCTION /*schema.*/fence_refuse_fall() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP IN ('DELETE', 'TRUNCATE') THEN
        RAISE EXCEPTION '% is refused on %: the watermarks would be lost', TG_OP, TG_TABLE_NAME
            USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
    END IF;
    RAISE EXCEPTION 'watermark of % may not go from fence % (lease %, version %) to % (lease %, version %)',
        OLD.resource_id, OLD.fence, OLD.lease_id, OLD.version, NEW.fence, NEW.lease_id, NEW.version
        USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END
$$;
CREATE TRIGGER fence_never_falls BEFORE UPDATE ON /*schema.*/fence_watermark FOR EACH ROW
WHEN (NEW.fence < OLD.fence OR (NEW.fence = OLD.fence AND NEW.lease_id <> OLD.lease_id)
      OR NEW.version < OLD.version OR (NEW.fence = OLD.fence AND NEW.last_sequence < OLD.last_sequence)
      OR NEW.resource_id <> OLD.resource_id)
EXECUTE FUNCTION /*schema.*/fence_refuse_fall();
CREATE TRIGGER fence_outlives_leases BEFORE DELETE ON /*schema.*/fence_watermark FOR EACH ROW
EXECUTE FUNCTION /*schema.*/fence_refuse_fall();
CREATE TRIGGER fence_never_truncated BEFORE TRUNCATE ON /*schema.*/fence_watermark FOR EACH STATEMENT
EXECUTE FUNCTION /*schema.*/fence_refuse_fall();

-- Old commands and rejections may be deleted under SET pglease.prune = on; nothing changes them.
CREATE FUNCTION /*schema.*/fence_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('pglease.prune', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% is refused on %', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'PGF03', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END
$$;
CREATE TRIGGER command_never_changes BEFORE UPDATE OR DELETE ON /*schema.*/fence_command FOR EACH ROW
EXECUTE FUNCTION /*schema.*/fence_refuse_change();
CREATE TRIGGER command_never_truncated BEFORE TRUNCATE ON /*schema.*/fence_command FOR EACH STATEMENT
EXECUTE FUNCTION /*schema.*/fence_refuse_change();
CREATE TRIGGER rejection_never_changes BEFORE UPDATE OR DELETE ON /*schema.*/fence_rejection FOR EACH ROW
EXECUTE FUNCTION /*schema.*/fence_refuse_change();
CREATE TRIGGER rejection_never_truncated BEFORE TRUNCATE ON /*schema.*/fence_rejection FOR EACH STATEMENT
EXECUTE FUNCTION /*schema.*/fence_refuse_change();

-- The trigger of a fenced table. Its conditions are in the WHEN clauses, so it runs for what is to
-- be refused alone. Arguments: key column, fence column, lease column or ''.
CREATE FUNCTION /*schema.*/fence_refuse_stale() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    stored  jsonb := to_jsonb(OLD);
    carried jsonb := to_jsonb(NEW);
    place   text  := format('%s.%s', TG_TABLE_SCHEMA, TG_TABLE_NAME);
    named   text  := stored ->> TG_ARGV[0];
    greatest_fence bigint;
    fence          bigint;
    greatest_lease text := stored ->> TG_ARGV[2];
    lease          text := carried ->> TG_ARGV[2];
BEGIN
    IF NOT (stored ? TG_ARGV[0] AND stored ? TG_ARGV[1] AND (TG_ARGV[2] = '' OR stored ? TG_ARGV[2])) THEN
        RAISE EXCEPTION '% is refused on %: a column that fence_table was given has another name now', TG_OP, place
            USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA,
                  HINT = 'Call fence_table again, with the names of today.';
    ELSIF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'DELETE is refused on %: the watermark of % would be lost', place, named
            USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA,
                  HINT = 'Mark the row as deleted, or fence the table with allow_delete => true. To Postgres, moving a row to another partition is a DELETE too.';
    END IF;
    greatest_fence := stored ->> TG_ARGV[1];
    fence := coalesce(carried ->> TG_ARGV[1], '0');
    IF fence < greatest_fence OR (fence = greatest_fence AND lease IS DISTINCT FROM greatest_lease) THEN
        RAISE EXCEPTION 'stale owner: % of % has accepted fence %, this write carries %', named, place,
            concat_ws(' of lease ', greatest_fence, greatest_lease), concat_ws(' of lease ', fence, lease)
            USING ERRCODE = 'PGF01', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA, COLUMN = TG_ARGV[1],
                  DETAIL = jsonb_build_object('key', named, 'fence', fence, 'lease_id', lease,
                                              'greatest_fence', greatest_fence, 'greatest_lease_id', greatest_lease)::text,
                  HINT = 'The lease of this writer is over: another owner has written since.';
    END IF;
    RAISE EXCEPTION 'the key of a row of % may not change: % would lose its watermark', place, named
        USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA, COLUMN = TG_ARGV[0];
END
$$;

CREATE FUNCTION /*schema.*/fence_refuse_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'TRUNCATE is refused on %.%: its watermarks would be lost', TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END
$$;

-- A table, its partitions and the tables that inherit from it, each with what its triggers are to be.
-- A partition gets the triggers for rows from its parent, and has none of its own; TRUNCATE must be
-- refused on each.
CREATE FUNCTION /*schema.*/fence_family(fenced regclass) RETURNS TABLE (member regclass, rows_too boolean) STABLE LANGUAGE sql AS $$
    WITH RECURSIVE family AS (
        SELECT c.oid, true AS rows_too FROM pg_catalog.pg_class AS c WHERE c.oid = fenced
        UNION
        SELECT c.oid, NOT c.relispartition
        FROM family AS f
        JOIN pg_catalog.pg_inherits AS i ON i.inhparent = f.oid
        JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
    )
    SELECT f.oid::regclass, f.rows_too FROM family AS f
$$;

CREATE FUNCTION /*schema.*/unfence_table(fenced regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    member   regclass;
    rows_too boolean;
BEGIN
    FOR member, rows_too IN SELECT f.member, f.rows_too FROM /*schema.*/fence_family(fenced) AS f LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS pglease_fence_truncate ON %s', member);
        CONTINUE WHEN NOT rows_too;
        EXECUTE format('DROP TRIGGER IF EXISTS pglease_fence ON %s', member);
        EXECUTE format('DROP TRIGGER IF EXISTS pglease_fence_move ON %s', member);
        EXECUTE format('DROP TRIGGER IF EXISTS pglease_fence_delete ON %s', member);
    END LOOP;
END
$$;
COMMENT ON FUNCTION /*schema.*/unfence_table(regclass) IS 'Takes the triggers of fence_table off a table, its partitions and the tables that inherit from it.';

-- Text would be compared letter by letter, and a numeric can be NaN, which is above all numbers.
CREATE FUNCTION /*schema.*/fence_check_column(fenced regclass, given name, wanted regtype) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found regtype := (SELECT a.atttypid FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = fenced AND a.attname = given);
BEGIN
    IF found <> wanted THEN
        RAISE EXCEPTION 'column % of % is %, and must be %', given, fenced, found, wanted USING ERRCODE = 'datatype_mismatch';
    END IF;
END
$$;

-- The triggers are AFTER triggers, because they then see what the table's own triggers have made
-- of the row. An UPDATE that moves a row to another partition runs no AFTER UPDATE trigger, so a
-- partitioned table has the check before it too. A NULL fence is that of a row which no owner has
-- written yet.
CREATE FUNCTION /*schema.*/fence_table(fenced regclass, key_column name, fence_column name,
                                       lease_column name DEFAULT NULL, allow_delete boolean DEFAULT false)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    -- The schema's name as a value; put into a string here, it would have to be quoted twice.
    home  text := (SELECT n.nspname FROM pg_catalog.pg_type AS t JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace
                   WHERE t.oid = pg_typeof(NULL::/*schema.*/fence_watermark));
    stale text := format('OLD.%1$I IS NOT NULL AND (NEW.%1$I IS NULL OR NEW.%1$I < OLD.%1$I)', fence_column);
    call  text := format('EXECUTE FUNCTION %I.fence_refuse_stale(%L, %L, %L)', home, key_column, fence_column, coalesce(lease_column, ''));
    member   regclass;
    rows_too boolean;
BEGIN
    IF fenced IS NULL THEN -- as from to_regclass, of a table that is not there
        RAISE EXCEPTION 'there is no such table' USING ERRCODE = 'undefined_table';
    END IF;
    PERFORM /*schema.*/fence_check_column(fenced, fence_column, 'bigint');
    IF lease_column IS NOT NULL THEN
        PERFORM /*schema.*/fence_check_column(fenced, lease_column, 'uuid');
        stale := stale || format(' OR NEW.%1$I = OLD.%1$I AND NEW.%2$I IS DISTINCT FROM OLD.%2$I', fence_column, lease_column);
    END IF;
    stale := stale || format(' OR NEW.%1$I IS DISTINCT FROM OLD.%1$I', key_column);
    PERFORM /*schema.*/unfence_table(fenced);
    FOR member, rows_too IN SELECT f.member, f.rows_too FROM /*schema.*/fence_family(fenced) AS f LOOP
        IF NOT allow_delete THEN
            EXECUTE format('CREATE TRIGGER pglease_fence_truncate BEFORE TRUNCATE ON %s FOR EACH STATEMENT
                            EXECUTE FUNCTION %I.fence_refuse_truncate()', member, home);
        END IF;
        CONTINUE WHEN NOT rows_too;
        EXECUTE format('CREATE TRIGGER pglease_fence AFTER UPDATE ON %s FOR EACH ROW WHEN (%s) %s', member, stale, call);
        IF (SELECT c.relkind = 'p' FROM pg_catalog.pg_class AS c WHERE c.oid = member) THEN
            EXECUTE format('CREATE TRIGGER pglease_fence_move BEFORE UPDATE ON %s FOR EACH ROW WHEN (%s) %s', member, stale, call);
        END IF;
        IF NOT allow_delete THEN
            EXECUTE format('CREATE TRIGGER pglease_fence_delete AFTER DELETE ON %s FOR EACH ROW WHEN (OLD.%I IS NOT NULL) %s', member, fence_column, call);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION /*schema.*/fence_table(regclass, name, name, name, boolean) IS 'Holds every writer of a table to fences: an UPDATE that lowers the fence of a row fails with PGF01. Calling it again replaces what it did before.';
