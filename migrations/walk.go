package migrations

import (
	"context"
	"errors"
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

// climb takes steps up until one finds nothing to do. Each looks again where the line stands: other
// migrators may have had their turn in between. It ends because a Down has one turn only.
func (m *Migrator) climb(ctx context.Context, pool *pgxpool.Pool, line Line) (Result, error) {
	var result Result
	conn, err := connect(ctx, pool)
	if err != nil {
		return result, m.explain("up", line, Migration{}, err)
	}
	defer closeConn(ctx, conn)
	for {
		var done move
		err := m.locked(ctx, conn, func(tx pgx.Tx) (err error) {
			done, err = m.stepUp(ctx, tx, line)
			return err
		})
		if err != nil {
			var at Migration
			if done.at != nil {
				at = *done.at
			}
			return result, m.explainUp(ctx, conn, line, at, err)
		}
		result.add(done)
		if done.at == nil {
			return result, nil
		}
	}
}

// explainUp looks at the tables where an error leaves open what they are.
func (m *Migrator) explainUp(ctx context.Context, conn *pgx.Conn, line Line, at Migration, err error) error {
	explained := m.explain("up", line, at, err)
	var failed *Error
	switch code(err) {
	case duplicateTable, duplicateColumn, duplicateFunction, duplicateObject:
		if errors.As(explained, &failed) && failed.Hint == "" {
			failed.Hint = m.inTheWay(ctx, conn, line, at)
		}
	}
	return explained
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
	if done.from == all[len(all)-1].Version {
		done.adopted, err = m.adopt(ctx, tx, line)
	}
	return done, err
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
