DROP TABLE /*schema.*/outbox_relay;
DROP TABLE /*schema.*/outbox;
DROP FUNCTION /*schema.*/outbox_refuse_change();
