package migrations

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Each of these raises the generation above all that is known of the server before: the generation
// that the old base gives here, and that of each fence on record. It changes nothing on the server
// that the base was computed on. Zero rows: nothing to adopt.
const adoptLease = `
UPDATE /*schema.*/installation AS i
SET generation_base = greatest(
        i.generation_base + t.timeline,
        coalesce((SELECT max(l.fence) >> 41 FROM /*schema.*/resource_lease AS l), 0),
        coalesce((SELECT max(h.fence) >> 41 FROM /*schema.*/lease_history AS h), 0)) + 1 - t.timeline,
    system_identifier = c.system_identifier
FROM /*schema.*/server_timeline AS t, pg_control_system() AS c
WHERE i.system_identifier <> c.system_identifier`

// adoptJobs leaves the timeline out: where a server cannot tell it, the view does not use it. What
// it adds to the new base makes the generation greater than it need be.
const adoptJobs = `
UPDATE /*schema.*/job_installation AS i
SET generation_base = greatest(
        i.generation_base,
        (SELECT f.floor >> 41 FROM /*schema.*/job_fence_floor AS f),
        coalesce((SELECT max(j.fence) >> 41 FROM /*schema.*/job AS j), 0),
        coalesce((SELECT max(p.generation) >> 41 FROM /*schema.*/job_partition AS p), 0)) + 1,
    system_identifier = c.system_identifier
FROM pg_control_system() AS c
WHERE i.system_identifier <> c.system_identifier`

// The lines that draw fences, each with the table that says which server it is at home on.
var adoptions = []struct {
	line       Line
	table, sql string
}{
	{Lease, "/*schema.*/installation", adoptLease},
	{Jobs, "/*schema.*/job_installation", adoptJobs},
}

// Adopt makes an installation at home on a server that it was not made on: after pg_upgrade, or a
// dump restored elsewhere. There the server's timeline starts again at 1, and fences would start
// below those that were granted before. Adopt raises them above, for each of the lines [Lease] and
// [Jobs] that is there, and reports whether there was anything to do. [Migrator.Up] of one of these
// lines does it too, for that line.
//
// Run it before the first grant or claim on the new server. On a server that takes over from a
// failed one by replication it has nothing to do: the timeline tells.
func (m *Migrator) Adopt(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	var adopted bool
	conn, err := connect(ctx, pool)
	if err == nil {
		defer closeConn(ctx, conn)
		err = m.locked(ctx, conn, func(tx pgx.Tx) error {
			adopted, err = m.adoptAll(ctx, tx)
			return err
		})
	}
	return adopted, m.explain("adopt", Lease, Migration{}, err)
}

// adoptAll adopts the lines that are there. Where there is none, the error is that of the first.
func (m *Migrator) adoptAll(ctx context.Context, tx pgx.Tx) (adopted bool, err error) {
	var there []Line
	for _, a := range adoptions {
		var found bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", m.schema.SQL(a.table)).Scan(&found); err != nil {
			return false, err
		}
		if found {
			there = append(there, a.line)
		}
	}
	if len(there) == 0 {
		there = []Line{Lease}
	}
	for _, line := range there {
		one, err := m.adopt(ctx, tx, line)
		if err != nil {
			return false, err
		}
		adopted = adopted || one
	}
	return adopted, nil
}

// adopt adopts one line. One that draws no fences has nothing to adopt.
func (m *Migrator) adopt(ctx context.Context, tx pgx.Tx, line Line) (bool, error) {
	for _, a := range adoptions {
		if a.line != line {
			continue
		}
		foreign := "SELECT EXISTS (SELECT FROM " + a.table + " AS i WHERE i.system_identifier <> (pg_control_system()).system_identifier)"
		var needed bool
		// Looking first lets a role pass that may read and not write, and a standby.
		if err := tx.QueryRow(ctx, m.schema.SQL(foreign)).Scan(&needed); err != nil || !needed {
			return false, err
		}
		return true, exec(ctx, tx, m.schema.SQL(a.sql))
	}
	return false, nil
}
