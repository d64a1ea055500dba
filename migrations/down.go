package migrations

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A mark is the row of a version table as somebody saw it. Each migrator that moves the line writes
// another row, so the same mark means that nobody moved it in between, not even there and back.
type mark struct {
	table   uint32 // its oid; 0 where there is none
	version int64
	writer  string // the transaction that wrote the row; empty where there is none
}

// descend reverts what is there when it is called. It looks before it waits for the lock, and has
// one turn: an Up that runs beside it and is let in later is not chased.
func (m *Migrator) descend(ctx context.Context, pool *pgxpool.Pool, line Line) (Result, error) {
	result, at, err := m.revert(ctx, pool, line)
	if err != nil {
		result = Result{}
	}
	return result, m.explain("down", line, at, err)
}

// revert also returns the migration at work when it stopped.
func (m *Migrator) revert(ctx context.Context, pool *pgxpool.Pool, line Line) (result Result, at Migration, err error) {
	all, err := All(line, m.schema.Name())
	if err != nil {
		return result, at, err
	}
	conn, err := connect(ctx, pool)
	if err != nil {
		return result, at, err
	}
	defer closeConn(ctx, conn)
	asked, err := m.look(ctx, conn, line)
	if err != nil || asked.table == 0 {
		return result, at, err
	}
	err = m.locked(ctx, conn, func(tx pgx.Tx) (err error) {
		result, at = Result{}, Migration{}
		there, err := m.mark(ctx, tx, line)
		switch {
		case err != nil || there.table == 0:
			return err
		case there.writer == "":
			return m.remove(ctx, tx, line)
		case there != asked && asked.writer == "":
			return nil // there was nothing to destroy
		case there != asked:
			return ErrOvertaken
		}
		result, at, err = m.revertAll(ctx, tx, line, all)
		return err
	})
	return result, at, err
}

// look returns the line's mark without waiting for other migrators. A lock on the version table
// makes it wait all the same, and then no timeout counts that is meant for an application.
func (m *Migrator) look(ctx context.Context, conn *pgx.Conn, line Line) (seen mark, err error) {
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := execAll(ctx, tx, begin); err != nil {
			return err
		}
		seen, err = m.mark(ctx, tx, line)
		return err
	})
	if code(err) == undefinedTable { // dropped a moment ago
		return mark{}, nil
	}
	return seen, err
}

func (m *Migrator) mark(ctx context.Context, tx pgx.Tx, line Line) (mark, error) {
	_, hasTable, err := m.exists(ctx, tx, line)
	if err != nil || !hasTable {
		return mark{}, err
	}
	var seen mark
	query := "SELECT v.tableoid, v.version, v.xmin::text FROM " + m.table(line) + " AS v LIMIT 1"
	err = tx.QueryRow(ctx, query).Scan(&seen.table, &seen.version, &seen.writer)
	if errors.Is(err, pgx.ErrNoRows) {
		query = "SELECT to_regclass($1)::oid"
		err = tx.QueryRow(ctx, query, m.table(line)).Scan(&seen.table)
	}
	return seen, err
}

// revertAll takes the line down to nothing and the version table away.
func (m *Migrator) revertAll(ctx context.Context, tx pgx.Tx, line Line, all []Migration) (result Result, at Migration, err error) {
	d := &driver{ctx, tx, m.table(line)}
	for {
		done, err := stand(d)
		switch {
		case err != nil && done.at != nil:
			return result, *done.at, err
		case err != nil:
			return result, Migration{}, err
		case done.from == 0:
			return result, Migration{}, m.remove(ctx, tx, line)
		}
		last, known := find(all, done.from)
		if !known {
			return result, Migration{Version: done.from}, ErrNewer
		}
		done.at, done.to = &all[last], 0
		if last > 0 {
			done.to = all[last-1].Version
		}
		if err := m.run(d, line, -1); err != nil {
			return result, all[last], err
		}
		result.add(done)
	}
}

func find(all []Migration, version uint) (int, bool) {
	return slices.BinarySearchFunc(all, version, func(m Migration, version uint) int {
		return cmp.Compare(m.Version, version)
	})
}
