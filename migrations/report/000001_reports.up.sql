-- The protected resource of the story: reports that refuse a stale owner, the record of every
-- version that was accepted and of every write that was refused. Needs nothing of the lease line.

CREATE TABLE /*schema.*/reports (
    report_id         text COLLATE "C" PRIMARY KEY CHECK (octet_length(report_id) BETWEEN 1 AND 512),
    body              bytea       NOT NULL DEFAULT '',
    version           bigint      NOT NULL DEFAULT 0 CHECK (version >= 0),
    content_hash      bytea       NOT NULL DEFAULT sha256(''),
    greatest_fence    bigint      NOT NULL CHECK (greatest_fence > 0),
    greatest_lease_id uuid        NOT NULL,
    greatest_owner_id text        NOT NULL DEFAULT '',
    greatest_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    written_fence     bigint,
    written_lease_id  uuid,
    written_owner_id  text,
    published_at      timestamptz
) WITH (fillfactor = 70);
COMMENT ON TABLE /*schema.*/reports IS 'One row a report, for ever: a row that went would take its watermark along.';
COMMENT ON COLUMN /*schema.*/reports.version IS '0 until something is published; then 1, 2, 3 without gaps';
COMMENT ON COLUMN /*schema.*/reports.content_hash IS 'SHA-256 of body, set by a trigger';
COMMENT ON COLUMN /*schema.*/reports.greatest_fence IS 'the watermark: whatever carries a lower fence is refused';
COMMENT ON COLUMN /*schema.*/reports.greatest_lease_id IS 'the lease that the watermark belongs to: tells two leases apart that came to share a fence';
COMMENT ON COLUMN /*schema.*/reports.greatest_owner_id IS 'for people to read; never used to decide';
COMMENT ON COLUMN /*schema.*/reports.greatest_at IS 'when the watermark was raised to greatest_fence';
COMMENT ON COLUMN /*schema.*/reports.written_fence IS 'the fence that the writer of body named. Below greatest_fence, it was written by a statement that did not look at the watermark';
COMMENT ON COLUMN /*schema.*/reports.published_at IS 'when body was written, set by a trigger; null until something is published';

CREATE TABLE /*schema.*/report_version (
    report_id      text COLLATE "C" NOT NULL,
    version        bigint      NOT NULL,
    body           bytea       NOT NULL,
    content_hash   bytea       NOT NULL,
    fence          bigint,
    lease_id       uuid,
    owner_id       text,
    greatest_fence bigint      NOT NULL,
    published_at   timestamptz NOT NULL,
    PRIMARY KEY (report_id, version)
);
COMMENT ON TABLE /*schema.*/report_version IS 'One row a version, written by a trigger on reports, so that no writer can leave itself out. Fence, lease and owner are what the writer named.';
COMMENT ON COLUMN /*schema.*/report_version.greatest_fence IS 'the watermark when the version was written; above fence, the write was not fenced';

CREATE TABLE /*schema.*/report_rejection (
    report_id         text COLLATE "C" NOT NULL,
    rejection_id      bigint      GENERATED ALWAYS AS IDENTITY,
    result            text        NOT NULL CHECK (result IN ('stale_owner', 'conflict')),
    fence             bigint      NOT NULL,
    lease_id          uuid        NOT NULL,
    owner_id          text        NOT NULL,
    greatest_fence    bigint      NOT NULL,
    greatest_lease_id uuid        NOT NULL,
    greatest_owner_id text        NOT NULL,
    greatest_at       timestamptz NOT NULL,
    expected_version  bigint,
    actual_version    bigint      NOT NULL,
    rejected_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (report_id, rejection_id)
);
COMMENT ON TABLE /*schema.*/report_rejection IS 'One row a write that was refused: who sent it, and what stood against it.';
COMMENT ON COLUMN /*schema.*/report_rejection.greatest_fence IS 'the watermark that the write met, before it';
COMMENT ON COLUMN /*schema.*/report_rejection.greatest_at IS 'when that watermark was raised: rejected_at less this is how late a stale write was';
COMMENT ON COLUMN /*schema.*/report_rejection.expected_version IS 'null where no version was expected: -1 as ExpectedVersion, or an Establish';

-- What follows holds invariants against everybody, psql included. One thing is left open on
-- purpose: an UPDATE that never looks at greatest_fence may still change the body. It cannot lower
-- the watermark, and it cannot keep itself out of report_version.

CREATE FUNCTION /*schema.*/report_refuse_lower_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP IN ('DELETE', 'TRUNCATE') THEN
        RAISE EXCEPTION '% is refused on %: the watermarks would be lost', TG_OP, TG_TABLE_NAME
            USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
    END IF;
    RAISE EXCEPTION 'greatest fence of % may not go from % (lease %) to % (lease %)',
        OLD.report_id, OLD.greatest_fence, OLD.greatest_lease_id, NEW.greatest_fence, NEW.greatest_lease_id
        USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END
$$;
CREATE TRIGGER report_fence_never_falls BEFORE UPDATE ON /*schema.*/reports FOR EACH ROW
WHEN (NEW.greatest_fence < OLD.greatest_fence
      OR (NEW.greatest_fence = OLD.greatest_fence AND NEW.greatest_lease_id <> OLD.greatest_lease_id)
      OR NEW.report_id <> OLD.report_id)
EXECUTE FUNCTION /*schema.*/report_refuse_lower_fence();
CREATE TRIGGER report_outlives_its_leases BEFORE DELETE ON /*schema.*/reports FOR EACH ROW
EXECUTE FUNCTION /*schema.*/report_refuse_lower_fence();
CREATE TRIGGER report_never_truncated BEFORE TRUNCATE ON /*schema.*/reports FOR EACH STATEMENT
EXECUTE FUNCTION /*schema.*/report_refuse_lower_fence();

-- A statement that sets the body raises the version by one; hash and time are not its to choose.
-- The trigger runs when the row is locked, so the clock is read after any wait. It names columns,
-- so that raising the watermark alone neither reads nor hashes the body.
CREATE FUNCTION /*schema.*/report_stamp_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NOT (NEW.version = 1 OR (NEW.version = 0 AND NEW.body = '')) THEN
            RAISE EXCEPTION 'report % may not begin at version %: 0 without a body, or 1', NEW.report_id, NEW.version
                USING ERRCODE = 'PGF03', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
        END IF;
    ELSIF NEW.version IS DISTINCT FROM OLD.version + 1 THEN
        RAISE EXCEPTION 'report % changes from version % to %, not to %', OLD.report_id, OLD.version, OLD.version + 1, NEW.version
            USING ERRCODE = 'PGF03', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
    END IF;
    NEW.content_hash := sha256(NEW.body);
    NEW.published_at := CASE WHEN NEW.version > 0 THEN clock_timestamp() END;
    IF TG_OP = 'UPDATE' AND NEW.greatest_fence > OLD.greatest_fence THEN
        NEW.greatest_at := clock_timestamp();
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER report_version_counts_new BEFORE INSERT ON /*schema.*/reports FOR EACH ROW
EXECUTE FUNCTION /*schema.*/report_stamp_version();
CREATE TRIGGER report_version_counts
BEFORE UPDATE OF body, version, content_hash, written_fence, written_lease_id, written_owner_id, published_at
ON /*schema.*/reports FOR EACH ROW
EXECUTE FUNCTION /*schema.*/report_stamp_version();

CREATE FUNCTION /*schema.*/report_keep_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO /*schema.*/report_version (report_id, version, body, content_hash, fence, lease_id, owner_id, greatest_fence, published_at)
    VALUES (NEW.report_id, NEW.version, NEW.body, NEW.content_hash, NEW.written_fence, NEW.written_lease_id,
            NEW.written_owner_id, NEW.greatest_fence, NEW.published_at);
    RETURN NULL;
END
$$;
CREATE TRIGGER report_version_kept_new AFTER INSERT ON /*schema.*/reports FOR EACH ROW
WHEN (NEW.version > 0)
EXECUTE FUNCTION /*schema.*/report_keep_version();
CREATE TRIGGER report_version_kept AFTER UPDATE ON /*schema.*/reports FOR EACH ROW
WHEN (NEW.version <> OLD.version)
EXECUTE FUNCTION /*schema.*/report_keep_version();

-- Old versions and rejections may be deleted under SET pglease.prune = on; nothing changes them.
CREATE FUNCTION /*schema.*/report_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('pglease.prune', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% is refused on %', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'PGF03', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END
$$;
CREATE TRIGGER report_version_comes_from_report BEFORE INSERT ON /*schema.*/report_version FOR EACH ROW
WHEN (pg_trigger_depth() = 0)
EXECUTE FUNCTION /*schema.*/report_refuse_change();
CREATE TRIGGER report_version_never_changes BEFORE UPDATE OR DELETE ON /*schema.*/report_version FOR EACH ROW
EXECUTE FUNCTION /*schema.*/report_refuse_change();
CREATE TRIGGER report_version_never_truncated BEFORE TRUNCATE ON /*schema.*/report_version FOR EACH STATEMENT
EXECUTE FUNCTION /*schema.*/report_refuse_change();
CREATE TRIGGER report_rejection_never_changes BEFORE UPDATE OR DELETE ON /*schema.*/report_rejection FOR EACH ROW
EXECUTE FUNCTION /*schema.*/report_refuse_change();
CREATE TRIGGER report_rejection_never_truncated BEFORE TRUNCATE ON /*schema.*/report_rejection FOR EACH STATEMENT
EXECUTE FUNCTION /*schema.*/report_refuse_change();
