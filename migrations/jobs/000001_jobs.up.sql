-- Work to be claimed. Needs nothing of the lease line.

-- job_installation has one row. It fixes what the floor of fences is counted from.
CREATE TABLE /*schema.*/job_installation (
    id                boolean     PRIMARY KEY DEFAULT true CHECK (id),
    epoch             timestamptz NOT NULL DEFAULT clock_timestamp(),
    generation_base   bigint      NOT NULL,
    system_identifier bigint      NOT NULL
);
COMMENT ON COLUMN /*schema.*/job_installation.epoch IS 'fences count milliseconds from here; never changes';
COMMENT ON COLUMN /*schema.*/job_installation.generation_base IS 'generation = generation_base + the server''s timeline; may be raised, never lowered';
COMMENT ON COLUMN /*schema.*/job_installation.system_identifier IS 'the server that generation_base was computed on';

-- job_fence_floor is the least fence that a claim may carry now: generation << 41 | milliseconds.
-- It keeps fences rising where the last claims were lost in a failover or by a restore.
-- pg_walfile_name is right during a promotion, when pg_control_checkpoint still names the old
-- timeline for minutes. It is one scan and no join, because each claim reads it.
CREATE VIEW /*schema.*/job_fence_floor AS
SELECT (greatest(i.generation_base + ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int::bigint, 0) << 41)
       | least(greatest((date_part('epoch', clock_timestamp() - i.epoch) * 1000)::bigint, 1), (1::bigint << 41) - 1) AS floor
FROM /*schema.*/job_installation i;

-- Some managed servers lack pg_walfile_name. There the generation is the base alone.
DO $$
BEGIN
    INSERT INTO /*schema.*/job_installation (generation_base, system_identifier)
    SELECT -('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int::bigint, (pg_control_system()).system_identifier;
EXCEPTION WHEN OTHERS THEN
    INSERT INTO /*schema.*/job_installation (generation_base, system_identifier)
    SELECT 0, (pg_control_system()).system_identifier;
    CREATE OR REPLACE VIEW /*schema.*/job_fence_floor AS
    SELECT (greatest(i.generation_base, 0) << 41)
           | least(greatest((date_part('epoch', clock_timestamp() - i.epoch) * 1000)::bigint, 1), (1::bigint << 41) - 1) AS floor
    FROM /*schema.*/job_installation i;
END
$$;

-- job_dear is never run. Statements have it in a condition that always holds before it: (j.attempt >= 0 OR
-- job_dear()). It makes each row that is looked at dear to the planner, so that a plan which was made while
-- a table was small, and is kept, goes by an index too. One SELECT alone would be put into the statement.
CREATE FUNCTION /*schema.*/job_dear() RETURNS boolean LANGUAGE sql STABLE COST 20000 AS $$ SELECT true; SELECT true $$;
GRANT EXECUTE ON FUNCTION /*schema.*/job_dear() TO PUBLIC; -- also where functions are granted to nobody by default

-- The bounds are domains and not CHECKs of the table: those are read again by each statement that
-- changes a row, which costs a claim a quarter of its time.
CREATE DOMAIN /*schema.*/job_state AS text COLLATE "C" CHECK (VALUE IN ('ready', 'waiting', 'running', 'parked', 'done', 'dropped'));
CREATE DOMAIN /*schema.*/job_queue AS text COLLATE "C" CHECK (octet_length(VALUE) BETWEEN 1 AND 128);
CREATE DOMAIN /*schema.*/job_key AS text COLLATE "C" CHECK (octet_length(VALUE) BETWEEN 1 AND 256);
CREATE DOMAIN /*schema.*/job_priority AS smallint CHECK (VALUE BETWEEN -2 AND 2);

-- Claims and heartbeats rewrite rows often, so each page keeps room for that, and is cleaned early.
CREATE TABLE /*schema.*/job (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue         /*schema.*/job_queue    NOT NULL,
    state         /*schema.*/job_state    NOT NULL,
    priority      /*schema.*/job_priority NOT NULL DEFAULT 0,
    run_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempt       int         NOT NULL DEFAULT 0,
    max_attempts  int         NOT NULL,
    fence         bigint      NOT NULL DEFAULT 0,
    worker_id     text,
    claimed_at    timestamptz,
    expires_at    timestamptz,
    partition_key /*schema.*/job_key,
    generation    bigint      NOT NULL DEFAULT 0,
    unique_key    /*schema.*/job_key,
    unique_until  timestamptz,
    unique_waits  boolean     NOT NULL DEFAULT false,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at   timestamptz,
    last_error    text,
    payload       json        NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE /*schema.*/job IS 'One row a job, from its enqueueing until it is pruned.';
COMMENT ON COLUMN /*schema.*/job.state IS 'ready: claimed when run_at comes. waiting: behind another job of its partition key. running: claimed. parked: gave up, for a person. done, dropped: over';
COMMENT ON COLUMN /*schema.*/job.priority IS '2 is claimed first, -2 last';
COMMENT ON COLUMN /*schema.*/job.attempt IS 'claims that count: one that was snoozed or given back does not';
COMMENT ON COLUMN /*schema.*/job.fence IS 'of the last claim; grows with each. It, not attempt, is what the steps of a claim are matched by';
COMMENT ON COLUMN /*schema.*/job.worker_id IS 'for people to read; never used to decide';
COMMENT ON COLUMN /*schema.*/job.expires_at IS 'a running job whose time is over may be taken from its worker. Not in any index: heartbeats change it';
COMMENT ON COLUMN /*schema.*/job.generation IS 'of the partition, drawn by the last claim';
COMMENT ON COLUMN /*schema.*/job.finished_at IS 'set when the job is done or dropped, which also wakes its partition';
COMMENT ON COLUMN /*schema.*/job.unique_key IS 'null when the job has none, or has given it up';
COMMENT ON COLUMN /*schema.*/job.unique_until IS 'the key is kept until then, also when the job is over';
COMMENT ON COLUMN /*schema.*/job.unique_waits IS 'the key is given up by the claim';

-- What finished, and what is parked, is not in the index that claims read. Running jobs have an
-- index by id alone: with the state as a column before it, the planner was seen to end a claim by
-- walking over everything that runs, and over what was left in the index by all that ran before.
CREATE INDEX job_ready_idx ON /*schema.*/job (queue, priority, run_at, id) WHERE state = 'ready';
CREATE INDEX job_running_idx ON /*schema.*/job (id) WHERE state = 'running';
CREATE INDEX job_waiting_idx ON /*schema.*/job (queue, partition_key, id) WHERE state = 'waiting';
CREATE INDEX job_ended_idx ON /*schema.*/job (state, finished_at, queue, id) WHERE state IN ('parked', 'done', 'dropped');
CREATE UNIQUE INDEX job_unique_idx ON /*schema.*/job (queue, unique_key) WHERE unique_key IS NOT NULL;
-- The order within a partition: one job at a time.
CREATE UNIQUE INDEX job_partition_head_idx ON /*schema.*/job (queue, partition_key)
WHERE partition_key IS NOT NULL AND state IN ('ready', 'running', 'parked');

CREATE TABLE /*schema.*/job_partition (
    queue         text COLLATE "C" NOT NULL,
    partition_key text COLLATE "C" NOT NULL,
    generation    bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, partition_key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE /*schema.*/job_partition IS 'One row a partition key that had a job: the generation grows with each claim of any of its jobs.';

CREATE TABLE /*schema.*/job_signal (
    queue         text COLLATE "C" NOT NULL,
    partition_key text COLLATE "C" NOT NULL,
    id            bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (queue, partition_key, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE /*schema.*/job_signal IS 'Partition keys to look at: a job was added, or its head is over. Insert only for who enqueues, so that nobody waits for them.';

CREATE TABLE /*schema.*/job_bell (
    worker_id uuid PRIMARY KEY,
    queue     text COLLATE "C" NOT NULL,
    waits     boolean     NOT NULL,
    seen_at   timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE /*schema.*/job_bell IS 'Worker processes that listen; who enqueues rings one that waits. A hint only.';

CREATE TABLE /*schema.*/job_once (
    key        text COLLATE "C" PRIMARY KEY CHECK (octet_length(key) BETWEEN 1 AND 512),
    result     json,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX job_once_created_at_idx ON /*schema.*/job_once (created_at);
COMMENT ON TABLE /*schema.*/job_once IS 'What was done once under an idempotency key, and its result.';

-- What follows holds invariants against everybody, psql included.

-- The fence grows with each claim. One of a partition's job also draws the partition's next
-- generation, in the statement that claims. Triggers name columns: one that a statement does not
-- set costs it nothing, and one that it sets has its condition read again.
CREATE FUNCTION /*schema.*/job_hold_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id <> OLD.id OR NEW.fence <= OLD.fence THEN
        RAISE EXCEPTION 'fence of job % may not go from % to %', OLD.id, OLD.fence, NEW.fence
            USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
    END IF;
    INSERT INTO /*schema.*/job_partition AS p (queue, partition_key, generation)
    VALUES (NEW.queue, NEW.partition_key, NEW.fence)
    ON CONFLICT (queue, partition_key) DO UPDATE SET generation = greatest(p.generation + 1, EXCLUDED.generation)
    RETURNING p.generation INTO STRICT NEW.generation;
    RETURN NEW;
END
$$;
CREATE TRIGGER job_fence_never_falls BEFORE UPDATE OF id, fence ON /*schema.*/job FOR EACH ROW
WHEN (NEW.fence <= OLD.fence OR NEW.id <> OLD.id OR NEW.partition_key IS NOT NULL)
EXECUTE FUNCTION /*schema.*/job_hold_fence();

CREATE FUNCTION /*schema.*/job_refuse_lower_generation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of a generation is refused on %', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'PGF02', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END
$$;
CREATE TRIGGER job_generation_never_falls BEFORE UPDATE ON /*schema.*/job_partition FOR EACH ROW
WHEN (NEW.generation < OLD.generation OR NEW.queue <> OLD.queue OR NEW.partition_key <> OLD.partition_key)
EXECUTE FUNCTION /*schema.*/job_refuse_lower_generation();
CREATE TRIGGER job_installation_never_falls BEFORE UPDATE ON /*schema.*/job_installation FOR EACH ROW
WHEN (NEW.epoch <> OLD.epoch OR NEW.generation_base < OLD.generation_base)
EXECUTE FUNCTION /*schema.*/job_refuse_lower_generation();
CREATE TRIGGER job_installation_stays BEFORE DELETE ON /*schema.*/job_installation FOR EACH ROW
EXECUTE FUNCTION /*schema.*/job_refuse_lower_generation();

-- The partition is looked at again whenever one of its jobs came or is over, whoever did that.
CREATE FUNCTION /*schema.*/job_signal_partition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO /*schema.*/job_signal (queue, partition_key) VALUES (OLD.queue, OLD.partition_key);
    ELSE
        INSERT INTO /*schema.*/job_signal (queue, partition_key) VALUES (NEW.queue, NEW.partition_key);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER job_signal_added AFTER INSERT ON /*schema.*/job FOR EACH ROW
WHEN (NEW.partition_key IS NOT NULL)
EXECUTE FUNCTION /*schema.*/job_signal_partition();
CREATE TRIGGER job_signal_over AFTER UPDATE OF finished_at ON /*schema.*/job FOR EACH ROW
WHEN (NEW.partition_key IS NOT NULL AND NEW.finished_at IS NOT NULL)
EXECUTE FUNCTION /*schema.*/job_signal_partition();
CREATE TRIGGER job_signal_gone AFTER DELETE ON /*schema.*/job FOR EACH ROW
WHEN (OLD.partition_key IS NOT NULL AND OLD.finished_at IS NULL)
EXECUTE FUNCTION /*schema.*/job_signal_partition();
