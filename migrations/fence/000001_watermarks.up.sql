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
-- be refused alone. Arguments: key column, fence column.
CREATE FUNCTION /*schema.*/fence_refuse_stale() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    key_is  text := to_jsonb(OLD) ->> TG_ARGV[0];
    stored  text := to_jsonb(OLD) ->> TG_ARGV[1];
    carried text;
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'DELETE is refused on %.%: the watermark of % would be lost', TG_TABLE_SCHEMA, TG_TABLE_NAME, key_is
            USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA,
                  HINT = 'Mark the row as deleted, or fence the table with allow_delete => true.';
    ELSIF to_jsonb(NEW) ->> TG_ARGV[0] IS DISTINCT FROM key_is THEN
        RAISE EXCEPTION 'the key of a row of %.% may not change: % would lose its watermark', TG_TABLE_SCHEMA, TG_TABLE_NAME, key_is
            USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA, COLUMN = TG_ARGV[0];
    END IF;
    carried := coalesce(to_jsonb(NEW) ->> TG_ARGV[1], '0');
    RAISE EXCEPTION 'stale owner: % of %.% has accepted fence %, this write carries %', key_is, TG_TABLE_SCHEMA, TG_TABLE_NAME, stored, carried
        USING ERRCODE = 'PGF01', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA, COLUMN = TG_ARGV[1],
              DETAIL = jsonb_build_object('key', key_is, 'fence', carried::bigint, 'greatest_fence', stored::bigint)::text,
              HINT = 'The lease of this writer is over: another owner has written since.';
END
$$;

CREATE FUNCTION /*schema.*/fence_refuse_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'TRUNCATE is refused on %.%: its watermarks would be lost', TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END
$$;

CREATE FUNCTION /*schema.*/unfence_table(fenced regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DROP TRIGGER IF EXISTS pglease_fence ON %s', fenced);
    EXECUTE format('DROP TRIGGER IF EXISTS pglease_fence_delete ON %s', fenced);
    EXECUTE format('DROP TRIGGER IF EXISTS pglease_fence_truncate ON %s', fenced);
END
$$;
COMMENT ON FUNCTION /*schema.*/unfence_table(regclass) IS 'Takes the triggers of fence_table off a table.';

-- The triggers are AFTER triggers, because they then see what the table's own triggers have made
-- of the row. A NULL fence is that of a row which no owner has written yet.
CREATE FUNCTION /*schema.*/fence_table(fenced regclass, key_column name, fence_column name,
                                       lease_column name DEFAULT NULL, allow_delete boolean DEFAULT false)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    -- The schema's name as a value; put into a string here, it would have to be quoted twice.
    home  text := (SELECT n.nspname FROM pg_catalog.pg_type AS t JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace
                   WHERE t.oid = pg_typeof(NULL::/*schema.*/fence_watermark));
    stale text := format('OLD.%1$I IS NOT NULL AND (NEW.%1$I IS NULL OR NEW.%1$I < OLD.%1$I)', fence_column);
BEGIN
    IF lease_column IS NOT NULL THEN
        stale := stale || format(' OR NEW.%1$I = OLD.%1$I AND NEW.%2$I IS DISTINCT FROM OLD.%2$I', fence_column, lease_column);
    END IF;
    PERFORM /*schema.*/unfence_table(fenced);
    EXECUTE format('CREATE TRIGGER pglease_fence AFTER UPDATE ON %1$s FOR EACH ROW WHEN (%2$s OR NEW.%3$I IS DISTINCT FROM OLD.%3$I)
                    EXECUTE FUNCTION %5$I.fence_refuse_stale(%3$L, %4$L)', fenced, stale, key_column, fence_column, home);
    IF NOT allow_delete THEN
        EXECUTE format('CREATE TRIGGER pglease_fence_delete AFTER DELETE ON %1$s FOR EACH ROW WHEN (OLD.%3$I IS NOT NULL)
                        EXECUTE FUNCTION %4$I.fence_refuse_stale(%2$L, %3$L)', fenced, key_column, fence_column, home);
        EXECUTE format('CREATE TRIGGER pglease_fence_truncate BEFORE TRUNCATE ON %1$s FOR EACH STATEMENT
                        EXECUTE FUNCTION %2$I.fence_refuse_truncate()', fenced, home);
    END IF;
END
$$;
COMMENT ON FUNCTION /*schema.*/fence_table(regclass, name, name, name, boolean) IS 'Holds every writer of a table to fences: an UPDATE that lowers the fence of a row fails with PGF01. Calling it again replaces what it did before.';
