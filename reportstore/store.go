package reportstore

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/reportstore/internal/reportdb"
)

// Config says where the reports are. The zero value of each field means its default.
type Config struct {
	// Schema is the Postgres schema that the migrations were put into. Default "pglease".
	Schema string

	// Owner names this process to people, in the history and in the errors of others. It never
	// decides anything, so two processes may share it. At most 256 bytes. Default: none.
	Owner string
}

// A Store publishes and reads reports. It is safe for concurrent use and holds nothing that needs
// closing; the pool stays the caller's. The zero Store is of no use: call New.
type Store struct {
	pool    *pgxpool.Pool
	schema  *schema.Schema
	queries *reportdb.Queries
	owner   string
}

// New returns a store on the pool's database. It sends nothing; the tables are made by the line
// "report" of the migrations. The error tells all that is wrong with cfg.
func New(pool *pgxpool.Pool, cfg Config) (*Store, error) {
	var problems []error
	if pool == nil {
		problems = append(problems, errors.New("the pool is nil"))
	}
	s, err := schema.New(cfg.Schema)
	if err != nil {
		problems = append(problems, err)
	}
	if err := checkOwner(cfg.Owner); err != nil {
		problems = append(problems, err)
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("reportstore: %w", errors.Join(problems...))
	}
	return &Store{pool: pool, schema: s, queries: reportdb.New(), owner: cfg.Owner}, nil
}
