-- Fails while a table is fenced: its owners rely on the trigger. Call unfence_table first.
DROP FUNCTION /*schema.*/fence_table(regclass, name, name, name, boolean);
DROP FUNCTION /*schema.*/unfence_table(regclass);
DROP FUNCTION /*schema.*/fence_check_column(regclass, name, regtype);
DROP FUNCTION /*schema.*/fence_family(regclass);
DROP FUNCTION /*schema.*/fence_refuse_truncate();
DROP FUNCTION /*schema.*/fence_refuse_stale();
DROP TABLE /*schema.*/fence_rejection;
DROP TABLE /*schema.*/fence_command;
DROP TABLE /*schema.*/fence_watermark;
DROP FUNCTION /*schema.*/fence_refuse_change();
DROP FUNCTION /*schema.*/fence_refuse_fall();
