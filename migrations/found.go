package migrations

import (
	"context"
	"regexp"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// created finds what a migration creates and no other has: tables, views, functions and procedures of our schema.
var created = regexp.MustCompile(`(?m)^CREATE (?:TABLE|VIEW|FUNCTION|PROCEDURE) "(?:[^"]|"")+"\.(\w+)`)

// found returns the version that the tables themselves are at, whatever is recorded: the last one of
// which all is there, and of those before it.
func (m *Migrator) found(ctx context.Context, conn *pgx.Conn, all []Migration) (uint, error) {
	const query = `
SELECT NOT EXISTS (
    SELECT FROM unnest($2::text[]) AS made(name)
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                      WHERE n.nspname = $1 AND c.relname = made.name)
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
                      WHERE n.nspname = $1 AND p.proname = made.name))`
	var version uint
	for _, migration := range all {
		var names []string
		for _, match := range created.FindAllStringSubmatch(migration.Up, -1) {
			names = append(names, match[1])
		}
		var whole bool
		if err := conn.QueryRow(ctx, query, m.schema.Name(), names).Scan(&whole); err != nil || !whole {
			return version, err
		}
		version = migration.Version
	}
	return version, nil
}

// inTheWay says what to do where something that a migration creates is there already: another tool
// applied it, and perhaps further ones, or something else has its name.
func (m *Migrator) inTheWay(ctx context.Context, conn *pgx.Conn, line Line, at Migration) string {
	all, err := All(line, m.schema.Name())
	if err != nil {
		return ""
	}
	version, err := m.found(ctx, conn, all)
	switch {
	case err != nil:
		return ""
	case version < at.Version:
		return "not all of this version is there: something else has that name, or another tool stopped half way"
	}
	return "if another tool applied this version, run: pglease migrate force" + m.flags(line) + " " + strconv.FormatUint(uint64(version), 10)
}
