package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/reportstore"
)

// A stage is the database that the story plays on: a schema of the demo's own, on a server that
// was given or that is started for it.
type stage struct {
	server  *postgres.Server
	keep    bool
	pool    *pgxpool.Pool
	schema  *schema.Schema
	claim   *pgx.Conn // holds the schema's name against the sweep of later demos
	reports *reportstore.Store
	swept   int // schemas that killed demos had left
}

// build finds or starts the server and makes the schema. The caller must clear the stage.
func build(ctx context.Context, o Options) (*stage, error) {
	server, err := postgres.FindOrStart(ctx, postgres.Options{URL: o.URL})
	if err != nil {
		return nil, err
	}
	s := &stage{server: server, keep: o.Keep}
	if err := s.furnish(ctx); err != nil {
		return nil, errors.Join(err, s.clear(ctx))
	}
	return s, nil
}

func (s *stage) furnish(ctx context.Context) (err error) {
	// A random name, so that nothing that exists is touched and demos can run side by side.
	if s.schema, err = schema.New(fmt.Sprintf("%s%08x", prefix, rand.Uint32())); err != nil {
		return err
	}
	if s.pool, err = pgxpool.New(ctx, s.server.URL()); err != nil {
		return err
	}
	if err := s.occupy(ctx); err != nil {
		return err
	}
	migrator, err := migrations.New(s.schema.Name())
	if err != nil {
		return err
	}
	for _, line := range []migrations.Line{migrations.Lease, migrations.Report} {
		if _, err := migrator.Up(ctx, s.pool, line); err != nil {
			return err
		}
	}
	s.reports, err = reportstore.New(s.pool, reportstore.Config{Schema: s.schema.Name()})
	return err
}

// clear leaves nothing behind: it stops the server if it was started for the demo, and else drops
// the schema. It has its own time, because the demo's may have ended.
func (s *stage) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var dropped error
	if s.pool != nil {
		if !s.server.Started() && !s.keep {
			_, dropped = s.pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+s.schema.Quoted()+" CASCADE")
		}
		if s.claim != nil {
			_ = s.claim.Close(ctx) // it holds no more than a lock
		}
		s.pool.Close()
	}
	if s.server.Started() {
		return s.server.Stop()
	}
	if dropped != nil {
		return fmt.Errorf("drop the demo's schema %s: %w", s.schema.Quoted(), dropped)
	}
	return nil
}

// tenure is how the authority recorded one lease.
type tenure struct {
	fence int64
	lease [16]byte
	ended string
}

// tenureOf reads the only tenure that the owner has had, from the history of those that ended. The
// error matches pgx.ErrNoRows where it has had none.
func (s *stage) tenureOf(ctx context.Context, report, owner string) (tenure, error) {
	var t tenure
	err := s.schema.On(s.pool).QueryRow(ctx, `SELECT fence, lease_id, ended FROM /*schema.*/lease_history
WHERE resource_id = $1 AND owner_id = $2 AND fence IS NOT NULL`, report, owner).Scan(&t.fence, &t.lease, &t.ended)
	if err != nil {
		return tenure{}, fmt.Errorf("the tenure of %s: %w", owner, err)
	}
	return t, nil
}
