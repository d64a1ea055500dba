package jobs_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/pgbouncer"
	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/jobs"
)

// TestBehindATransactionPoolerJobsAreFoundByPolling: and nobody is left to listen in a session that others use next.
func TestBehindATransactionPoolerJobsAreFoundByPolling(t *testing.T) {
	t.Parallel()
	const sessions = 4
	for name, settings := range map[string][]string{
		"sessions are shared as they are": nil, "sessions are shared in another order": {"server_round_robin = 1"},
	} {
		t.Run(name, func(t *testing.T) {
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
			if err := migrations.Up(t.Context(), pools.Open(t, server.URL()), migrations.Jobs); err != nil {
				t.Fatal(err)
			}
			pooler, err := pgbouncer.Start(t.Context(), server, pgbouncer.Transaction, append(settings, "default_pool_size = 4")...)
			switch {
			case errors.Is(err, pgbouncer.ErrNotFound) && os.Getenv("PGLEASE_REQUIRE_ALL") == "":
				t.Skip(err)
			case err != nil:
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := pooler.Stop(); err != nil {
					t.Error(err)
				}
			})
			b := setUpOn(t, pools.Open(t, pooler.URL()+"&default_query_exec_mode=exec"))
			polls := make(chan error, 10)
			stop := works(t, b.pool, jobs.Config{Observer: jobs.ObserverFunc(func(e jobs.Event) {
				if e.Kind == jobs.EventPollOnly {
					polls <- e.Err
				}
			})}, func(context.Context, *jobs.Claim) error { return nil })
			if err := <-polls; err == nil {
				t.Error("it only polls, and does not say why")
			}
			b.eventually(b.enqueue(jobs.Job{Queue: queue, Payload: []byte(`1`)})[0], jobs.Done)
			stop()
			var held []pgx.Tx
			defer func() {
				for _, tx := range held {
					_ = tx.Rollback(context.WithoutCancel(t.Context()))
				}
			}()
			for range sessions { // all at once, to see each
				tx, err := b.pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, tx)
				rows, err := tx.Query(t.Context(), "SELECT pg_listening_channels()")
				if err != nil {
					t.Fatal(err)
				}
				if channels, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(channels) > 0 {
					t.Errorf("another client listens to %v, %v", channels, err)
				}
			}
		})
	}
}
