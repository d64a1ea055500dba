package pgbouncer_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/pgbouncer"
	"github.com/pglease/pglease/internal/postgres"
)

func TestItPools(t *testing.T) {
	t.Parallel()
	server, err := postgres.Start(t.Context(), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	pooler, err := pgbouncer.Start(t.Context(), server, pgbouncer.Transaction, "default_pool_size = 1")
	if errors.Is(err, pgbouncer.ErrNotFound) && os.Getenv("PGLEASE_REQUIRE_ALL") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pooler.Stop(); err != nil {
			t.Error(err)
		}
	})
	var pids [2]int
	for i := range pids { // both are connected at once, and share one session of the server
		config, err := pgx.ParseConfig(pooler.URL())
		if err != nil {
			t.Fatal(err)
		}
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatalf("%v\n%s", err, pooler.Log())
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		if err := conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pids[i]); err != nil {
			t.Fatal(err)
		}
	}
	if pids[0] != pids[1] {
		t.Errorf("served by %v", pids)
	}
}
