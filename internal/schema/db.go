package schema

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DBTX is what the generated code runs its statements on; pgx's pool, connection and transaction
// have it.
type DBTX interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// On returns db with the schema put into each statement that passes.
func (s *Schema) On(db DBTX) DBTX { return qualified{schema: s, db: db} }

type qualified struct {
	schema *Schema
	db     DBTX
}

func (q qualified) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return q.db.Exec(ctx, q.schema.SQL(sql), args...)
}

func (q qualified) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return q.db.Query(ctx, q.schema.SQL(sql), args...)
}

func (q qualified) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return q.db.QueryRow(ctx, q.schema.SQL(sql), args...)
}
