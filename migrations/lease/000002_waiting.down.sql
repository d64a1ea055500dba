DROP VIEW /*schema.*/lease_line;
DROP TABLE /*schema.*/lease_waiter;
DROP TABLE /*schema.*/lease_client;
ALTER TABLE /*schema.*/lease_history DROP COLUMN ticket;
ALTER TABLE /*schema.*/resource_lease DROP COLUMN ticket, DROP COLUMN lock_delay, DROP COLUMN queue_version, DROP COLUMN waiting;
