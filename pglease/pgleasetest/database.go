package pgleasetest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/migrations"
)

// databaseTime bounds each step of making and dropping a database.
const databaseTime = 2 * time.Minute

// poolCloseTime is how long a pool may wait for connections that the test has not given back.
const poolCloseTime = 10 * time.Second

// URL returns the URL of a database that is the test's own, with the given lines of migrations
// applied, and that of leases always. The database is dropped when the test and its subtests are
// done; doc.go says when it is kept. Without a server the test fails, it is never skipped.
func URL(tb testing.TB, lines ...migrations.Line) string {
	tb.Helper()
	srv, err := server()
	if err != nil {
		tb.Fatalf("pgleasetest: %v", err)
	}
	template, err := templateFor(srv, lines)
	if err != nil {
		tb.Fatalf("pgleasetest: make the template database: %v", err)
	}
	database := "pglease_test_" + strings.ToLower(rand.Text()[:16])
	url, err := withDatabase(srv.URL(), database)
	if err != nil {
		tb.Fatalf("pgleasetest: %v", err)
	}
	if err := onServer(srv, "CREATE DATABASE "+database+" TEMPLATE "+template); err != nil {
		tb.Fatalf("pgleasetest: clone the template database: %v", err)
	}
	tb.Cleanup(func() { dropDatabase(tb, srv, database, url) })
	return url
}

func dropDatabase(tb testing.TB, srv *postgres.Server, database, url string) {
	tb.Helper()
	if tb.Failed() && !srv.Started() {
		tb.Logf("pgleasetest: the test failed, its database is kept: %s", url)
		return
	}
	if err := onServer(srv, "DROP DATABASE IF EXISTS "+database+" WITH (FORCE)"); err != nil {
		tb.Errorf("pgleasetest: drop the test's database: %v", err)
	}
}

func onServer(srv *postgres.Server, sql string) error {
	// Not the test's context, which is over when cleanup runs.
	ctx, cancel := context.WithTimeout(context.Background(), databaseTime)
	defer cancel()
	return administer(ctx, srv, func(conn *pgx.Conn) error { return run(ctx, conn, sql) })
}

// Pool returns a pool of connections to a database as URL makes it. The pool is closed when the
// test and its subtests are done; a connection that was not given back by then fails the test.
func Pool(tb testing.TB, lines ...migrations.Line) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(URL(tb, lines...))
	if err != nil {
		tb.Fatalf("pgleasetest: %v", err)
	}
	return open(tb, config)
}

func open(tb testing.TB, config *pgxpool.Config) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(tb.Context()), config)
	if err != nil {
		tb.Fatalf("pgleasetest: %v", err)
	}
	tb.Cleanup(func() {
		tb.Helper()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			pool.Close()
		}()
		select {
		case <-closed:
		case <-time.After(poolCloseTime):
			tb.Errorf("pgleasetest: %d connections were not given back to the pool", pool.Stat().AcquiredConns())
		}
	})
	return pool
}
