package main

import (
	"context"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
)

// open returns a pool on the database that was named. It does not connect yet. The caller closes it.
func (s *settings) open(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(s.url())
	if err != nil {
		return nil, usageError{err}
	}
	config.MaxConns = 2
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "pglease"
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// url returns the first that is set. The empty URL leaves all to the PG* variables.
func (s *settings) url() string {
	if s.databaseURL != "" {
		return s.databaseURL
	}
	if url := os.Getenv("PGLEASE_DATABASE_URL"); url != "" {
		return url
	}
	return os.Getenv("DATABASE_URL")
}
