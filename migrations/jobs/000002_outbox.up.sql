-- Messages that are written with a business change and relayed afterwards.

CREATE TABLE /*schema.*/outbox (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    outbox        text COLLATE "C" NOT NULL CHECK (octet_length(outbox) BETWEEN 1 AND 512),
    message_key   text COLLATE "C" NOT NULL CHECK (octet_length(message_key) <= 256),
    topic         text        NOT NULL CHECK (octet_length(topic) <= 256),
    body          bytea       NOT NULL,
    written_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    relayed_at    timestamptz,
    relayed_fence bigint,
    CHECK ((relayed_at IS NULL) = (relayed_fence IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE /*schema.*/outbox IS 'One row a message. A relay takes what has no relayed_at, never what is above the last id: a lower id may commit later.';
COMMENT ON COLUMN /*schema.*/outbox.outbox IS 'the name of the outbox, and of the resource whose lease its relay holds';
COMMENT ON COLUMN /*schema.*/outbox.relayed_fence IS 'the fence of the relay that delivered it';

CREATE INDEX outbox_unsent_idx ON /*schema.*/outbox (outbox, id) WHERE relayed_at IS NULL;
CREATE INDEX outbox_relayed_at_idx ON /*schema.*/outbox (outbox, relayed_at) WHERE relayed_at IS NOT NULL;

CREATE TABLE /*schema.*/outbox_relay (
    outbox            text COLLATE "C" PRIMARY KEY,
    greatest_fence    bigint NOT NULL CHECK (greatest_fence > 0),
    greatest_lease_id uuid   NOT NULL
) WITH (fillfactor = 70);
COMMENT ON TABLE /*schema.*/outbox_relay IS 'The watermark of each outbox: the greatest fence among its relays, and the lease which that belongs to.';

-- What follows holds invariants against everybody, psql included.

CREATE FUNCTION /*schema.*/outbox_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is refused on %', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END
$$;
CREATE TRIGGER outbox_fence_never_falls BEFORE UPDATE ON /*schema.*/outbox_relay FOR EACH ROW
WHEN (NEW.greatest_fence < OLD.greatest_fence OR NEW.outbox <> OLD.outbox
      OR (NEW.greatest_fence = OLD.greatest_fence AND NEW.greatest_lease_id <> OLD.greatest_lease_id))
EXECUTE FUNCTION /*schema.*/outbox_refuse_change();
CREATE TRIGGER outbox_relay_stays BEFORE DELETE ON /*schema.*/outbox_relay FOR EACH ROW
EXECUTE FUNCTION /*schema.*/outbox_refuse_change();
CREATE TRIGGER outbox_relayed_for_good BEFORE UPDATE ON /*schema.*/outbox FOR EACH ROW
WHEN (OLD.relayed_at IS NOT NULL)
EXECUTE FUNCTION /*schema.*/outbox_refuse_change();
