package migrations

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// adoptSQL raises the generation above all that is known of the server before: the generation that
// the old base gives here, and that of each fence on record. It changes nothing on the server that
// the base was computed on. Zero rows: nothing to adopt.
const adoptSQL = `
UPDATE /*schema.*/installation AS i
SET generation_base = greatest(
        i.generation_base + t.timeline,
        coalesce((SELECT max(l.fence) >> 41 FROM /*schema.*/resource_lease AS l), 0),
        coalesce((SELECT max(h.fence) >> 41 FROM /*schema.*/lease_history AS h), 0)) + 1 - t.timeline,
    system_identifier = c.system_identifier
FROM /*schema.*/server_timeline AS t, pg_control_system() AS c
WHERE i.system_identifier <> c.system_identifier`

// Adopt makes an installation at home on a server that it was not made on: after pg_upgrade, or a
// dump restored elsewhere. There the server's timeline starts again at 1, and fences would start
// below those that were granted before. Adopt raises them above, and reports whether there was
// anything to do. [Migrator.Up] of the line [Lease] does it too.
//
// Run it before the first grant on the new server. On a server that takes over from a failed one
// by replication it has nothing to do: the timeline tells.
func (m *Migrator) Adopt(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	var adopted bool
	conn, err := connect(ctx, pool)
	if err == nil {
		defer closeConn(ctx, conn)
		err = m.locked(ctx, conn, func(tx pgx.Tx) error {
			adopted, err = m.adopt(ctx, tx)
			return err
		})
	}
	return adopted, m.explain("adopt", Lease, Migration{}, err)
}

func (m *Migrator) adopt(ctx context.Context, tx pgx.Tx) (bool, error) {
	foreign := "SELECT EXISTS (SELECT FROM /*schema.*/installation AS i WHERE i.system_identifier <> (pg_control_system()).system_identifier)"
	var needed bool
	// Looking first lets a role pass that may read and not write, and a standby.
	if err := tx.QueryRow(ctx, m.schema.SQL(foreign)).Scan(&needed); err != nil || !needed {
		return false, err
	}
	return true, exec(ctx, tx, m.schema.SQL(adoptSQL))
}
