package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease"
)

// cleanupTime bounds what is done after the run, also after an interrupted one.
const cleanupTime = time.Minute

// leaseTTL is long, so that no renewal falls into a run where none is wanted. Where leases are released at once, they
// have the TTL that is the default.
const leaseTTL = time.Hour

// A stage is where a run takes place: a server, and a schema of the run's own on it.
type stage struct {
	options Options
	server  *postgres.Server
	control *pgxpool.Pool // for what is not measured
	schema  string
	counter counter
	ends    []func(context.Context) error
}

// open finds or starts the server and makes the schema. The caller ends the stage, also after an
// error.
func (s *stage) open(ctx context.Context) error {
	var err error
	opts := postgres.Options{URL: s.options.URL, Durable: true, MaxConnections: 4*s.options.Clients + 6*s.options.Processes + 50}
	if s.server, err = postgres.FindOrStart(ctx, opts); err != nil {
		return err
	}
	s.atEnd(func(context.Context) error { return s.server.Stop() })
	config, err := s.config()
	if err != nil {
		return err
	}
	if s.control, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	s.atEnd(func(context.Context) error { s.control.Close(); return nil })
	s.schema = "pglease_bench_" + strings.ToLower(rand.Text()[:8])
	fmt.Fprintf(s.options.Notice, "%s: schema %s, dropped at the end\n", s.server.Source(), s.schema)
	s.atEnd(s.drop)
	return s.migrate(ctx)
}

func (s *stage) migrate(ctx context.Context) error {
	m, err := migrations.New(s.schema)
	if err != nil {
		return err
	}
	for _, line := range []migrations.Line{migrations.Lease, migrations.Report, migrations.Jobs} {
		if _, err := m.Up(ctx, s.control, line); err != nil {
			return err
		}
	}
	return s.execute(ctx, "UPDATE %s.installation SET history = $1", !s.options.NoHistory)
}

func (s *stage) drop(ctx context.Context) error {
	_, err := s.control.Exec(ctx, "DROP SCHEMA IF EXISTS "+s.schema+" CASCADE")
	return err
}

// atEnd adds what is to be done when the run is over; what was added last is done first.
func (s *stage) atEnd(f func(context.Context) error) { s.ends = append(s.ends, f) }

func (s *stage) end(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	for _, f := range slices.Backward(s.ends) {
		err = errors.Join(err, f(ctx))
	}
	return err
}

func (s *stage) config() (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(s.server.URL())
	if err != nil {
		return nil, err
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "pglease bench"
	}
	return config, nil
}

// pool returns one whose statements are counted, by the given tracer where one is given.
func (s *stage) pool(ctx context.Context, conns int, tracer pgx.QueryTracer) (*pgxpool.Pool, error) {
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.ConnConfig.Tracer = int32(conns), &s.counter
	if tracer != nil {
		config.ConnConfig.Tracer = tracer
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err == nil {
		s.atEnd(func(context.Context) error { pool.Close(); return nil })
	}
	return pool, err
}

// client returns one on the pool. At the end it gives up what it holds.
func (s *stage) client(ctx context.Context, pool *pgxpool.Pool, config pglease.Config) (*pglease.Client, error) {
	config.Schema = s.schema
	if config.TTL == 0 {
		config.TTL = leaseTTL
	}
	client, err := pglease.New(ctx, pool, config)
	if err != nil {
		return nil, err
	}
	s.atEnd(func(ctx context.Context) error {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = client.Close(ended) // leases that were not released go with the schema
		return nil
	})
	return client, nil
}

// connections returns as many as asked for, with nothing of ours about them.
func (s *stage) connections(ctx context.Context, n int) ([]*pgx.Conn, error) {
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	conns := make([]*pgx.Conn, n)
	for i := range conns {
		conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
		if err != nil {
			return nil, err
		}
		s.atEnd(conn.Close)
		conns[i] = conn
	}
	return conns, nil
}

// execute runs a statement with the schema's name at each %s.
func (s *stage) execute(ctx context.Context, sql string, args ...any) error {
	_, err := s.control.Exec(ctx, s.sql(sql), args...)
	return err
}

func (s *stage) sql(text string) string { return strings.ReplaceAll(text, "%s", s.schema) }
