package migrations

import (
	"context"
	"errors"
	"io"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/jackc/pgx/v5"
)

var errNotOffered = errors.New("not offered by this driver")

// driver is what golang-migrate works on: one step of one line inside one transaction.
//
// The drivers that come with golang-migrate write "version 3, dirty", then the tables, then
// "version 3, clean", in three transactions, and a process killed in between leaves a state that
// nobody can tell from the outside. Here the three are one transaction, which is begun, locked and
// committed by the caller, so there is no dirty state to write.
type driver struct {
	ctx   context.Context //nolint:containedctx // golang-migrate's interface has none; a driver lives for one call
	tx    pgx.Tx
	table string // quoted, with its schema
}

var _ database.Driver = (*driver)(nil)

// Lock and Unlock do nothing: the transaction holds the lock until it ends.
func (d *driver) Lock() error   { return nil }
func (d *driver) Unlock() error { return nil }
func (d *driver) Close() error  { return nil }

func (d *driver) Open(string) (database.Driver, error) { return nil, errNotOffered }
func (d *driver) Drop() error                          { return errNotOffered }

// Version returns database.NilVersion where nothing is recorded.
func (d *driver) Version() (int, bool, error) {
	var version int
	var dirty bool
	err := d.tx.QueryRow(d.ctx, "SELECT version, dirty FROM "+d.table+" LIMIT 1").Scan(&version, &dirty)
	if errors.Is(err, pgx.ErrNoRows) {
		return database.NilVersion, false, nil
	}
	return version, dirty, err
}

func (d *driver) SetVersion(version int, dirty bool) error {
	if dirty {
		return nil // see the type
	}
	// Not TRUNCATE, which would lock out those who only ask for the version.
	if err := exec(d.ctx, d.tx, "DELETE FROM "+d.table); err != nil {
		return err
	}
	if version < 0 {
		return nil
	}
	return exec(d.ctx, d.tx, "INSERT INTO "+d.table+" (version, dirty) VALUES ($1, false)", version)
}

func (d *driver) Run(migration io.Reader) error {
	text, err := io.ReadAll(migration)
	if err != nil {
		return err
	}
	return execAll(d.ctx, d.tx, string(text))
}
