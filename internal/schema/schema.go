// Package schema puts the name of a Postgres schema into SQL text that was written without one.
//
// Statements and migrations mark each name that belongs to us:
//
//	SELECT l.fence FROM /*schema.*/resource_lease AS l WHERE l.expires_at > clock_timestamp()
//
// The mark is a comment, so the text is valid SQL as it stands and sqlc keeps it. Text is
// rewritten rather than left to search_path, which a transaction pooler forgets.
package schema

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// Default is the schema used where none is named.
const Default = "pglease"

// MaxLength is the longest schema name in bytes. Postgres cuts identifiers at 63.
const MaxLength = 60

const mark = "/*schema.*/"

// builtins are the functions that decide: what time it is, who is who, what a setting is. They are
// qualified as well, because a search_path may put another schema before pg_catalog.
var builtins = []string{
	"clock_timestamp", "date_part", "gen_random_uuid", "current_setting", "set_config", "octet_length",
	"pg_walfile_name", "pg_current_wal_lsn", "pg_is_in_recovery", "pg_control_system", "pg_notify", "pg_trigger_depth",
	"pg_advisory_xact_lock", "pg_try_advisory_xact_lock", "pg_try_advisory_xact_lock_shared", "hashtextextended",
	"pg_sleep", "pg_cancel_backend", "pg_backend_pid", "has_table_privilege", "pg_has_role",
}

// replacer puts the qualifier at each mark.
func replacer(qualifier string) *strings.Replacer {
	pairs := []string{mark, qualifier}
	for _, name := range builtins {
		pairs = append(pairs, name+"(", "pg_catalog."+name+"(")
	}
	return strings.NewReplacer(pairs...)
}

// A Schema rewrites marked SQL for one schema. It is safe for concurrent use.
type Schema struct {
	name      string
	qualifier string
	replacer  *strings.Replacer
	rewritten sync.Map // marked text -> text for this schema; as many entries as there are statements
}

// New checks the name of a schema. The empty name means Default.
func New(name string) (*Schema, error) {
	if name == "" {
		name = Default
	}
	switch {
	case len(name) > MaxLength:
		return nil, fmt.Errorf("schema name is %d bytes long, the limit is %d", len(name), MaxLength)
	case !utf8.ValidString(name):
		return nil, fmt.Errorf("schema name %q is not valid UTF-8", name)
	case strings.ContainsRune(name, 0):
		return nil, fmt.Errorf("schema name %q contains a NUL", name)
	case strings.Contains(name, "$$"):
		return nil, fmt.Errorf("schema name %q contains $$, which ends the body of a function", name)
	case strings.HasPrefix(name, "pg_"):
		return nil, fmt.Errorf("schema name %q: Postgres reserves the prefix pg_", name)
	}
	qualifier := pgx.Identifier{name}.Sanitize() + "."
	return &Schema{name: name, qualifier: qualifier, replacer: replacer(qualifier)}, nil
}

// Name returns the unquoted name.
func (s *Schema) Name() string { return s.name }

// Quoted returns the name as an SQL identifier.
func (s *Schema) Quoted() string { return strings.TrimSuffix(s.qualifier, ".") }

// SQL returns the text with the schema at each mark. It keeps the result: call it with statements
// that are fixed in the program, not with ones that are made as it runs.
func (s *Schema) SQL(text string) string {
	if done, ok := s.rewritten.Load(text); ok {
		return done.(string)
	}
	done := s.replacer.Replace(text)
	s.rewritten.Store(text, done)
	return done
}
