package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/jobs"
	"github.com/pglease/pglease/reportstore"
)

// urlVariable beats DATABASE_URL, so that a service can keep its leases elsewhere.
const urlVariable = "PGLEASE_DATABASE_URL"

// A database is where the flags say that the reports are.
type database struct {
	url    string
	schema string
	lines  []string // of migrations that the command needs; default defaultLines
}

var (
	defaultLines = []string{"lease", "report"}
	jobLines     = []string{"jobs", "report"}
)

func (d *database) flags(c *cobra.Command) {
	c.Flags().StringVar(&d.url, "database-url", "", "the database; default $"+urlVariable+", then $DATABASE_URL, then PG*")
	c.Flags().StringVar(&d.schema, "schema", "", `the schema of the tables (default "pglease")`)
}

// givenURL is the flag, or else one of the variables, or else empty.
func givenURL(flag string) string {
	for _, url := range []string{flag, os.Getenv(urlVariable), os.Getenv("DATABASE_URL")} {
		if url != "" {
			return url
		}
	}
	return ""
}

func (d *database) config() (*pgxpool.Config, error) { return pgxpool.ParseConfig(givenURL(d.url)) }

// open connects to the database. An empty URL makes pgx read PGHOST and its like.
func (d *database) open(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := d.config()
	if err != nil {
		return nil, usageError{err}
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "reportpublisher"
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// withStore calls work with the report store and closes what it opened.
func (d *database) withStore(ctx context.Context, owner string, work func(*pgxpool.Pool, *reportstore.Store) error) error {
	pool, err := d.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := reportstore.New(pool, reportstore.Config{Schema: d.schema, Owner: owner})
	if err != nil {
		return usageError{err}
	}
	return d.explain(work(pool, store))
}

// withJobs calls work with the report store and a client of the jobs, both on one database.
func (d *database) withJobs(ctx context.Context, config jobs.Config, work func(*pgxpool.Pool, *reportstore.Store, *jobs.Client) error) error {
	d.lines = jobLines
	return d.withStore(ctx, config.Owner, func(pool *pgxpool.Pool, store *reportstore.Store) error {
		config.Schema = d.schema
		client, err := jobs.New(pool, config)
		if err != nil {
			return usageError{err}
		}
		if err := errors.Join(store.CheckSchema(ctx), client.CheckSchema(ctx)); err != nil {
			return err
		}
		return work(pool, store, client)
	})
}

// explain adds the remedy to an error that says that the tables are missing.
func (d *database) explain(err error) error {
	if !errors.Is(err, reportstore.ErrSchema) && !errors.Is(err, pglease.ErrSchema) && !errors.Is(err, jobs.ErrSchema) {
		return err
	}
	command := "pglease migrate up"
	lines := d.lines
	if lines == nil {
		lines = defaultLines
	}
	for _, line := range lines {
		command += " --line " + line
	}
	if d.schema != "" {
		command += " --schema '" + strings.ReplaceAll(d.schema, "'", `'\''`) + "'"
	}
	return fmt.Errorf("%w\nThe tables are missing or old. Make them with: %s", err, command)
}
