//go:build linux

package torture

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
)

// authoritySetup is what the harness adds to the authority's database: a counter that only the guard
// protects, with every count on record, and a trigger that writes down each change of a lease's row.
const authoritySetup = `
CREATE SCHEMA torture;
CREATE TABLE torture.counter (resource_id text PRIMARY KEY, n bigint NOT NULL);
CREATE TABLE torture.counted (
    number      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    resource_id text COLLATE "C" NOT NULL,
    n           bigint NOT NULL,
    key         text   NOT NULL,
    fence       bigint NOT NULL,
    lease_id    uuid   NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE torture.lease_change (
    number      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    resource_id text COLLATE "C" NOT NULL,
    fence       bigint NOT NULL,
    lease_id    uuid   NOT NULL,
    since       timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    ended       boolean NOT NULL
);
CREATE FUNCTION torture.note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO torture.lease_change (resource_id, fence, lease_id, since, expires_at, ended)
    VALUES (NEW.resource_id, NEW.fence, NEW.lease_id, NEW.expires_at - NEW.ttl, NEW.expires_at, NEW.ended_at IS NOT NULL);
    RETURN NULL;
END
$$;
CREATE TRIGGER torture_note_new AFTER INSERT ON pglease.resource_lease FOR EACH ROW EXECUTE FUNCTION torture.note_change();
CREATE TRIGGER torture_note_change AFTER UPDATE ON pglease.resource_lease FOR EACH ROW
WHEN (NEW.lease_id <> OLD.lease_id OR NEW.expires_at <> OLD.expires_at OR (NEW.ended_at IS NULL) <> (OLD.ended_at IS NULL))
EXECUTE FUNCTION torture.note_change();
`

// resourceSetup is the data that a watermark protects.
const resourceSetup = `
CREATE SCHEMA torture;
CREATE TABLE torture.effect (
    number      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    resource_id text COLLATE "C" NOT NULL,
    key         text   NOT NULL,
    fence       bigint NOT NULL,
    lease_id    uuid   NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp()
);
`

// setupTime bounds what is done to a database that is up.
const setupTime = time.Minute

// setUp brings the migrations and the harness's own tables in.
func setUp(ctx context.Context, url, more string, lines ...migrations.Line) error {
	ctx, cancel := context.WithTimeout(ctx, setupTime)
	defer cancel()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	for _, line := range lines {
		if err := migrations.Up(ctx, pool, line); err != nil {
			return err
		}
	}
	if _, err := pool.Exec(ctx, more); err != nil {
		return fmt.Errorf("set up the harness's tables: %w", err)
	}
	return nil
}

// onServer runs fn on a connection of its own, past every proxy.
func onServer(ctx context.Context, url string, fn func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, setupTime)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return fn(ctx, conn)
}
