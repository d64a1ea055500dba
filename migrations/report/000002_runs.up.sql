-- One logical run of a report for a period: the unique key says so, for ever, however often it is
-- asked for and by whom. What works on it may fail and be tried again; it stays the same run.

CREATE TABLE /*schema.*/report_runs (
    report_id      text COLLATE "C" NOT NULL CHECK (octet_length(report_id) BETWEEN 1 AND 512),
    period         text COLLATE "C" NOT NULL CHECK (octet_length(period) BETWEEN 1 AND 64),
    run            int         NOT NULL DEFAULT 1 CHECK (run > 0),
    status         text        NOT NULL DEFAULT 'started' CHECK (status IN ('started', 'published')),
    worker         text        NOT NULL DEFAULT '' CHECK (octet_length(worker) <= 512),
    started_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    published_at   timestamptz,
    version        bigint,
    greatest_fence bigint      NOT NULL DEFAULT 0,
    PRIMARY KEY (report_id, period),
    CHECK ((status = 'published') = (published_at IS NOT NULL)),
    CHECK ((status = 'published') = (version IS NOT NULL))
) WITH (fillfactor = 80);
COMMENT ON TABLE /*schema.*/report_runs IS 'One row a report and period: the one logical run, however many ask for it.';
COMMENT ON COLUMN /*schema.*/report_runs.run IS '1, and counted up when a published run is begun again on purpose';
COMMENT ON COLUMN /*schema.*/report_runs.status IS 'started: asked for. published: over';
COMMENT ON COLUMN /*schema.*/report_runs.worker IS 'what works on it, as in job/reports/7; for the caller, never used to decide';
COMMENT ON COLUMN /*schema.*/report_runs.version IS 'of the report, that ended the run';
COMMENT ON COLUMN /*schema.*/report_runs.greatest_fence IS 'of the worker that ended a run; who comes with a lower one is refused';

-- Holds against everybody, psql included.
CREATE FUNCTION /*schema.*/report_refuse_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'run % of report % for % may not become run % under fence %', OLD.run, OLD.report_id, OLD.period, NEW.run, NEW.greatest_fence
        USING ERRCODE = 'PGF03', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END
$$;
CREATE TRIGGER report_run_goes_on BEFORE UPDATE ON /*schema.*/report_runs FOR EACH ROW
WHEN (NEW.report_id <> OLD.report_id OR NEW.period <> OLD.period OR NEW.greatest_fence < OLD.greatest_fence
      OR NEW.run NOT IN (OLD.run, OLD.run + 1) OR (OLD.status = 'published' AND NEW.status = 'started' AND NEW.run = OLD.run))
EXECUTE FUNCTION /*schema.*/report_refuse_run();
