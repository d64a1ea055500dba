DROP PROCEDURE /*schema.*/lease_release(text, uuid, text, uuid, text, boolean, uuid, uuid, bigint, uuid, bigint, interval, boolean, boolean, integer);
DROP FUNCTION /*schema.*/lease_rouse(uuid);
DROP FUNCTION /*schema.*/lease_await(bigint, text[], uuid[], interval);
DROP FUNCTION /*schema.*/lease_pass(text, uuid, text);
DROP TABLE /*schema.*/lease_waiter;
DROP TABLE /*schema.*/lease_client;
ALTER TABLE /*schema.*/lease_history DROP COLUMN ticket;
ALTER TABLE /*schema.*/resource_lease DROP COLUMN served, DROP COLUMN ticket, DROP COLUMN lock_delay, DROP COLUMN waiting;
