DROP TABLE /*schema.*/report_rejection;
DROP TABLE /*schema.*/report_version;
DROP TABLE /*schema.*/reports;
DROP FUNCTION /*schema.*/report_refuse_change();
DROP FUNCTION /*schema.*/report_keep_version();
DROP FUNCTION /*schema.*/report_stamp_version();
DROP FUNCTION /*schema.*/report_refuse_lower_fence();
