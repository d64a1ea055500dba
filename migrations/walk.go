package migrations

import (
	"cmp"
	"context"
	"slices"

	"github.com/golang-migrate/migrate/v4"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A move is the work of one transaction.
type move struct {
	from, to uint
	at       *Migration // the one that was applied or reverted; nil at the end of the walk
	adopted  bool
}

func (r *Result) add(done move) {
	if len(r.Applied) == 0 {
		r.From = done.from
	}
	r.To = done.to
	r.Adopted = r.Adopted || done.adopted
	if done.at != nil {
		r.Applied = append(r.Applied, *done.at)
	}
}

type step func(ctx context.Context, tx pgx.Tx, line Line) (move, error)

// walk takes steps until one finds nothing to do. Each looks again where the line stands: another
// migrator may have had its turn in between.
func (m *Migrator) walk(ctx context.Context, pool *pgxpool.Pool, line Line, op string, take step) (Result, error) {
	var result Result
	conn, err := connect(ctx, pool)
	if err != nil {
		return result, m.explain(op, line, Migration{}, err)
	}
	defer closeConn(ctx, conn)
	for {
		var done move
		err := m.locked(ctx, conn, func(tx pgx.Tx) (err error) {
			done, err = take(ctx, tx, line)
			return err
		})
		if err != nil {
			var at Migration
			if done.at != nil {
				at = *done.at
			}
			return result, m.explain(op, line, at, err)
		}
		result.add(done)
		if done.at == nil {
			return result, nil
		}
	}
}

func (m *Migrator) stepUp(ctx context.Context, tx pgx.Tx, line Line) (move, error) {
	all, err := All(line, m.schema.Name())
	if err != nil {
		return move{}, err
	}
	if err := m.prepare(ctx, tx, line); err != nil {
		return move{}, err
	}
	d := &driver{ctx, tx, m.table(line)}
	done, err := stand(d)
	if err != nil {
		return done, err
	}
	next := slices.IndexFunc(all, func(known Migration) bool { return known.Version > done.from })
	if next >= 0 {
		done.at, done.to = &all[next], all[next].Version
		return done, m.run(d, line, +1)
	}
	// What a newer release made of the tables, only that release can adopt.
	if line == Lease && done.from == all[len(all)-1].Version {
		done.adopted, err = m.adopt(ctx, tx)
	}
	return done, err
}

func (m *Migrator) stepDown(ctx context.Context, tx pgx.Tx, line Line) (move, error) {
	all, err := All(line, m.schema.Name())
	if err != nil {
		return move{}, err
	}
	_, hasTable, err := m.exists(ctx, tx, line)
	if err != nil || !hasTable {
		return move{}, err
	}
	d := &driver{ctx, tx, m.table(line)}
	done, err := stand(d)
	if err != nil {
		return done, err
	}
	if done.from == 0 {
		return done, m.remove(ctx, tx, line)
	}
	last, known := find(all, done.from)
	if !known {
		done.at = &Migration{Version: done.from}
		return done, ErrNewer
	}
	done.at, done.to = &all[last], 0
	if last > 0 {
		done.to = all[last-1].Version
	}
	return done, m.run(d, line, -1)
}

// stand returns a move from and to where the line stands. From a dirty version it refuses to go on.
func stand(d *driver) (move, error) {
	recorded, dirty, err := d.Version()
	if err != nil {
		return move{}, err
	}
	version := uint(max(recorded, 0))
	if dirty {
		return move{at: &Migration{Version: version}}, ErrDirty
	}
	return move{from: version, to: version}, nil
}

func find(all []Migration, version uint) (int, bool) {
	return slices.BinarySearchFunc(all, version, func(m Migration, version uint) int {
		return cmp.Compare(m.Version, version)
	})
}

// run takes golang-migrate one migration up or down.
func (m *Migrator) run(d *driver, line Line, steps int) error {
	src, err := open(line, m.schema)
	if err != nil {
		return err
	}
	g, err := migrate.NewWithInstance("iofs", src, "pgx", d)
	if err != nil {
		return err
	}
	return g.Steps(steps)
}
