// Package pools opens pools of connections for tests, which close them when they are done.
package pools

import (
	"context"
	"maps"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Open returns a pool to the database of a URL, with its configuration changed.
func Open(tb testing.TB, url string, changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	return open(tb, config, changes)
}

// Like returns a second pool to the database of another, with its configuration changed.
func Like(tb testing.TB, pool *pgxpool.Pool, changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	return open(tb, pool.Config(), changes)
}

func open(tb testing.TB, config *pgxpool.Config, changes []func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	for _, change := range changes {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(tb.Context()), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// Settings gives the sessions of a pool these settings.
func Settings(settings map[string]string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { maps.Copy(c.ConnConfig.RuntimeParams, settings) }
}

// Conns lets a pool have so many connections.
func Conns(n int32) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.MaxConns = n }
}
