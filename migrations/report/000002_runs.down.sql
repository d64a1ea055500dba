DROP TABLE /*schema.*/report_runs;
DROP FUNCTION /*schema.*/report_refuse_run();
